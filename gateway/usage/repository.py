"""All SQL of usage: rows in by COPY, sums out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import TextClause, delete, func, select, text, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.db import SystemRead, SystemWrite, TenantRead
from gateway.ids import uuid7
from gateway.models import Tenant, UsageArrival, UsageLedger, UsageStaging, UsageUncounted, UsageUnpriced
from gateway.usage.event import COLUMNS, TAKEN_OVER, UsageEvent, row
from gateway.usage.watermark import journals_complete_until
from gateway.usage.zones import Window

_NAMES = ", ".join(COLUMNS)
_TO_LEDGER = text(
    f"INSERT INTO usage_ledger ({_NAMES}) SELECT {_NAMES} FROM usage_staging WHERE batch = :batch"  # noqa: S608  names are this file's
    " ON CONFLICT (request_id, attempt) DO NOTHING"
)
_TO_UNCOUNTED = text(
    f"INSERT INTO usage_uncounted ({_NAMES}) SELECT {_NAMES} FROM usage_staging s WHERE batch = :batch"  # noqa: S608  names are this file's
    " AND NOT EXISTS (SELECT FROM usage_ledger l WHERE (l.request_id, l.attempt) = (s.request_id, s.attempt))"
    " ON CONFLICT (request_id, attempt) DO NOTHING"
)
_GIVE_UP = text(
    "WITH old AS (DELETE FROM usage_uncounted WHERE ended_at < now() - interval '1 day' RETURNING *)"  # noqa: S608  names are this file's
    f" INSERT INTO usage_ledger ({_NAMES}) SELECT {_NAMES} FROM old"
    " ON CONFLICT (request_id, attempt) DO NOTHING"
)


@dataclass(frozen=True, slots=True)
class UsageLine:
    """Billed tokens and requests of one day and one adapter (None = the base; `owner`: of another tenant).
    `amount`: what they cost, in
    units of 10⁻¹² of the currency, None where no price covers them yet."""

    day: date
    adapter: str | None
    owner: UUID | None
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    amount: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums of a window, and what is not in them."""

    lines: list[UsageLine]
    complete_until: datetime | None
    currency: str | None
    unknown_requests: int
    has_unpriced: bool


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


_SUMS = text(
    """
    SELECT width_bucket(bucket, CAST(:edges AS timestamptz[])) AS day, adapter_name,
           nullif(owner_id, tenant_id) AS owner, sum(requests) AS requests, sum(prompt_tokens) AS prompt,
           sum(completion_tokens) AS completion, sum(cached_tokens) AS cached
    FROM usage_rollups
    WHERE tenant_id = :tenant AND bucket >= :start AND bucket < :end
    GROUP BY 1, 2, 3 ORDER BY 1, 2 NULLS FIRST, 3 NULLS FIRST
    """
)
_AMOUNTS = text(
    """
    SELECT width_bucket(bucket, CAST(:edges AS timestamptz[])) AS day, adapter_name,
           nullif(owner_id, tenant_id) AS owner, sum(amount) AS amount, min(currency) AS currency
    FROM usage_charges
    WHERE tenant_id = :tenant AND bucket >= :start AND bucket < :end
    GROUP BY 1, 2, 3
    """
)


async def totals(session: TenantRead, tenant: UUID, window: Window) -> Totals:
    """Billed usage of a tenant by day and adapter, off the rollups, with what it costs, by the end of the
    requests; probes and the like are not in it. The session must be a snapshot: tokens and amounts agree
    then, and both with what they are complete until."""
    until = await complete_until(session, tenant)
    given = {"tenant": tenant, "edges": window.edges, "start": window.start, "end": window.end}
    amounts = {(row.day, row.adapter_name, row.owner): row for row in await session.execute(_AMOUNTS, given)}
    lines = [
        UsageLine(
            window.days[row.day - 1],
            row.adapter_name,
            row.owner,
            int(row.requests),
            int(row.prompt),
            int(row.completion),
            int(row.cached),
            int(amounts[row.day, row.adapter_name, row.owner].amount)
            if (row.day, row.adapter_name, row.owner) in amounts
            else None,
        )
        for row in await session.execute(_SUMS, given)
    ]
    unpriced = select(UsageUnpriced.bucket).where(
        UsageUnpriced.tenant_id == tenant,
        UsageUnpriced.bucket >= window.start,
        UsageUnpriced.bucket < window.end,
    )
    return Totals(
        lines=lines,
        complete_until=until,
        currency=next((row.currency for row in amounts.values()), None),
        unknown_requests=await num_unknown(session, tenant, window.start, window.end),
        has_unpriced=await session.scalar(unpriced.limit(1)) is not None,
    )


async def reporting_zone(session: SystemRead, tenant: UUID) -> str:
    """UTC of a tenant that is none any more."""
    return await session.scalar(select(Tenant.reporting_zone).where(Tenant.id == tenant)) or "UTC"


async def names_of_owners(session: SystemRead, owners: Collection[UUID]) -> dict[UUID, str]:
    """Of other tenants, whose adapters were used."""
    if not owners:
        return {}
    found = await session.execute(select(Tenant.id, Tenant.name).where(Tenant.id.in_(owners)))
    return {row.id: row.name for row in found}


async def num_unknown(session: TenantRead, tenant: UUID, start: datetime, end: datetime) -> int:
    """Attempts that ended in [start, end) and that nobody could count yet."""
    query = (
        select(func.count())
        .select_from(UsageUncounted)
        .where(
            UsageUncounted.tenant_id == tenant,
            UsageUncounted.purpose == "tenant",
            UsageUncounted.outcome != TAKEN_OVER,
            UsageUncounted.ended_at >= start,
            UsageUncounted.ended_at < end,
        )
    )
    return int(await session.scalar(query) or 0)


async def complete_until(session: TenantRead, tenant: UUID) -> datetime | None:
    """Every request that ended before it is in the rollups and, where it has a price, charged."""
    journals = await journals_complete_until(session)
    query = select(func.min(UsageArrival.earliest)).where(UsageArrival.tenant_id == tenant)
    waiting = await session.scalar(query)
    return journals if journals is None or waiting is None else min(journals, waiting)
