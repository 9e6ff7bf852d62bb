"""All SQL of usage: rows in by COPY, sums out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, delete, func, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.db import SystemWrite, TenantRead
from gateway.ids import uuid7
from gateway.models import UsageLedger, UsageStaging, UsageUncounted
from gateway.usage.event import COLUMNS, UsageEvent, row

_NAMES = ", ".join(COLUMNS)
_TO_LEDGER = text(
    f"INSERT INTO usage_ledger ({_NAMES}) SELECT {_NAMES} FROM usage_staging WHERE batch = :batch"  # noqa: S608  names are this file's
    " ON CONFLICT (request_id, attempt) DO NOTHING"
)
_TO_UNCOUNTED = text(
    f"INSERT INTO usage_uncounted ({_NAMES}) SELECT {_NAMES} FROM usage_staging WHERE batch = :batch"  # noqa: S608  names are this file's
    " ON CONFLICT (request_id, attempt) DO NOTHING"
)
_GIVE_UP = text(
    "WITH old AS (DELETE FROM usage_uncounted WHERE ended_at < now() - interval '1 day' RETURNING *)"  # noqa: S608  names are this file's
    f" INSERT INTO usage_ledger ({_NAMES}) SELECT {_NAMES} FROM old"
    " ON CONFLICT (request_id, attempt) DO NOTHING"
)


@dataclass(frozen=True, slots=True)
class UsageLine:
    """Billed tokens and requests of one day (UTC) and one adapter (None = the base)."""

    day: date
    adapter: str | None
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


BILLING_LOCK = 0x6D6F7465745F6269  # advisory


async def decide_alone(session: SystemWrite) -> None:
    """Until this transaction ends, no other decides what an attempt bills that its own worker did not."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": BILLING_LOCK})


async def insert_events(session: SystemWrite, events: Sequence[UsageEvent]) -> int:
    """Adds what the ledger does not hold yet; gives how many rows that were. Attempts without a count are put
    aside until there is one. Replaying a batch changes nothing."""
    await _load(session, [event for event in events if not event.counted], _TO_UNCOUNTED)
    return await _load(session, [event for event in events if event.counted], _TO_LEDGER)


async def _load(session: SystemWrite, events: Sequence[UsageEvent], into: TextClause) -> int:
    if not events:
        return 0
    batch = uuid7()
    await _copy(session, events, batch)
    added = await session.execute(into, {"batch": batch})
    await session.execute(delete(UsageStaging).where(UsageStaging.batch == batch))
    return int(added.rowcount)  # type: ignore[attr-defined]  # a CursorResult, as every INSERT's


async def _copy(session: SystemWrite, events: Sequence[UsageEvent], batch: UUID) -> None:
    """Of the same attempt twice in one batch, the last stands."""
    unique: Mapping[tuple[UUID, int], UsageEvent] = {(e.request_id, e.attempt): e for e in events}
    connection = await session.connection()
    raw = await connection.get_raw_connection()
    driver: Any = raw.driver_connection
    assert driver is not None
    await driver.copy_records_to_table(
        "usage_staging",
        records=[(*row(event), batch) for event in unique.values()],
        columns=[*COLUMNS, "batch"],
    )


async def attempts_of(session: AsyncSession, requests: Sequence[UUID]) -> list[UsageLedger]:
    """Ledger rows of these requests, all attempts."""
    if not requests:
        return []
    return list(await session.scalars(select(UsageLedger).where(UsageLedger.request_id.in_(requests))))


async def uncounted_of(session: AsyncSession, requests: Sequence[UUID]) -> list[UsageUncounted]:
    """Attempts of these requests that wait for the engine's count."""
    if not requests:
        return []
    query = select(UsageUncounted).where(UsageUncounted.request_id.in_(requests))
    return list(await session.scalars(query))


async def forget_uncounted(session: SystemWrite, attempts: Sequence[tuple[UUID, int]]) -> None:
    if attempts:
        found = tuple_(UsageUncounted.request_id, UsageUncounted.attempt).in_(attempts)
        await session.execute(delete(UsageUncounted).where(found))


async def give_up_uncounted(session: SystemWrite) -> int:
    """Attempts whose replica never told its count, a day later: a row that counts and bills nothing."""
    added = await session.execute(_GIVE_UP)
    return int(added.rowcount)  # type: ignore[attr-defined]  # a CursorResult, as every INSERT's


async def totals(session: TenantRead, tenant: UUID, first: date, last: date) -> list[UsageLine]:
    """Billed usage of a tenant by day and adapter, both days included; probes and the like are not in it."""
    day = func.date(func.timezone("UTC", UsageLedger.created_at))
    low = datetime(first.year, first.month, first.day, tzinfo=UTC)
    high = datetime(last.year, last.month, last.day, tzinfo=UTC) + timedelta(days=1)
    query = (
        select(
            day,
            UsageLedger.adapter_name,
            func.count(UsageLedger.request_id.distinct()),
            func.sum(UsageLedger.billed_prompt_tokens),
            func.sum(UsageLedger.billed_completion_tokens),
            func.sum(UsageLedger.billed_cached_tokens),
        )
        .where(
            UsageLedger.tenant_id == tenant,
            UsageLedger.purpose == "tenant",
            UsageLedger.request_id >= func.motet_first_request_id(low),
            UsageLedger.request_id < func.motet_first_request_id(high),
        )
        .group_by(day, UsageLedger.adapter_name)
        .order_by(day, UsageLedger.adapter_name.asc().nulls_first())
    )
    rows = (await session.execute(query)).all()
    return [UsageLine(r[0], r[1], int(r[2]), int(r[3]), int(r[4]), int(r[5])) for r in rows]
