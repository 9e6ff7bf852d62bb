"""All SQL of request events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, select, text

from gateway.db import SystemRead, SystemWrite, TenantRead
from gateway.events.event import COLUMNS, Outcome, RequestEvent
from gateway.models import RequestEvent as Row

MOST_MS: Final = 3_000
"""What one look may take: a filter that matches little in a busy week is told so instead."""

_NAMES = ", ".join(COLUMNS)
_ADD = text(
    f"INSERT INTO request_events ({_NAMES}) SELECT {_NAMES}"  # noqa: S608  names are this file's
    " FROM json_populate_recordset(NULL::request_events, CAST(:rows AS json))"
    " ON CONFLICT (request_id) DO NOTHING"
)
_KEEP = text("SELECT motet_keep_request_events(:ahead, :kept)")
_BRIEFLY = text(f"SELECT set_config('statement_timeout', '{MOST_MS}', true)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Requests that came in [start, end)."""

    start: datetime
    end: datetime
    outcome: Outcome | None = None
    status_class: int | None = None  # 4 = 400 to 499
    code: str | None = None
    adapter: str | None = None
    key_id: str | None = None
    slower_than_ms: float | None = None


async def add(session: SystemWrite, events: Sequence[RequestEvent]) -> None:
    """What is there already stays as it is, so that a batch may be repeated. Row-level security refuses COPY,
    so it goes as one JSON value."""
    await session.execute(_ADD, {"rows": msgspec.json.encode(events).decode()})


async def one(session: TenantRead, tenant: UUID, request_id: UUID) -> Row | None:
    return await session.scalar(select(Row).where(Row.tenant_id == tenant, Row.request_id == request_id))


async def tenant_of(session: SystemRead, request_id: UUID) -> UUID | None:
    return await session.scalar(select(Row.tenant_id).where(Row.request_id == request_id))


async def page(session: TenantRead, tenant: UUID, wanted: Filter, after: UUID | None, most: int) -> list[Row]:
    """Newest first, from below `after`."""
    await session.execute(_BRIEFLY)
    query = select(Row).where(Row.tenant_id == tenant, *_conditions(wanted))
    if after is not None:
        query = query.where(Row.request_id < after)
    return list(await session.scalars(query.order_by(Row.request_id.desc()).limit(most)))


async def keep(session: SystemWrite, *, ahead: int, kept: int) -> int:
    """Partitions for the days to come; those older than `kept` days go. Gives how many."""
    return int(await session.scalar(_KEEP, {"ahead": ahead, "kept": kept}) or 0)


def first_id(moment: datetime) -> UUID:
    """The least id that a request of that moment can have (RFC 9562, UUIDv7)."""
    return UUID(int=_unix_ms(moment) << 80)


def _conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    found = [Row.request_id >= first_id(wanted.start), Row.request_id < first_id(wanted.end)]
    if wanted.outcome is not None:
        found.append(Row.outcome == wanted.outcome.value)
    if wanted.status_class is not None:
        found.append(Row.status.between(wanted.status_class * 100, wanted.status_class * 100 + 99))
    if wanted.code is not None:
        found.append(Row.error_code == wanted.code)
    if wanted.adapter is not None:
        found.append(Row.adapter_name == wanted.adapter)
    if wanted.key_id is not None:
        found.append(Row.key_id == wanted.key_id)
    if wanted.slower_than_ms is not None:
        found.append(Row.total_ms >= wanted.slower_than_ms)
    return found


def _unix_ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
