"""All SQL of exports. Control makes them; a tenant reads those of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Row, func, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.billing.exports.focus import ChargeGroup, Residue
from gateway.billing.months import end_of, start_of
from gateway.db import SystemRead, SystemWrite
from gateway.models import (
    BillingExport,
    BillingPeriod,
    BillingStatement,
    Tenant,
    UsageCharge,
    UsageUncounted,
    UsageUnpriced,
)
from gateway.paging import Order, beyond
from gateway.usage.event import TAKEN_OVER

PAGE_ROWS: Final = 1_000
ExportPlace = tuple[datetime, str]
NEWEST_FIRST: Order[ExportPlace] = Order("exports", datetime, str)


@dataclass(frozen=True, slots=True)
class ExportFilters:
    """None = any."""

    state: str | None = None
    month: date | None = None


_GROUPS = text(
    """
    SELECT g.*, t.name AS tenant_name, o.name AS owner_name, b.name AS base_name
    FROM (
      SELECT date_trunc('hour', bucket, 'UTC') AS hour, tenant_id, key_id, base_id, owner_id, adapter_name,
             adapter_version, artefact, service_class, source, version, price_id, currency,
             input_price, cached_price, output_price,
             sum(requests) AS requests, sum(input_tokens) AS input, sum(cached_tokens) AS cached,
             sum(output_tokens) AS output, min(seq) AS first_seq, max(seq) AS last_seq,
             max(rated_at) AS rated_at
      FROM usage_charges
      WHERE billed_month = :month AND tenant_id = :tenant AND seq <= :through
      GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
      HAVING sum(input_tokens) <> 0 OR sum(cached_tokens) <> 0 OR sum(output_tokens) <> 0
    ) g
    LEFT JOIN tenants t ON t.id = g.tenant_id
    LEFT JOIN tenants o ON o.id = g.owner_id
    LEFT JOIN bases b ON b.base_id = g.base_id
    ORDER BY g.hour, g.key_id, g.base_id, g.owner_id NULLS FIRST, g.adapter_name NULLS FIRST,
             g.adapter_version NULLS FIRST, g.artefact NULLS FIRST, g.service_class, g.source, g.version,
             g.price_id
    """
)


async def through_seq(session: AsyncSession, tenant: UUID | None, month: date) -> int:
    """The last charge billed in the month; 0 when there is none."""
    query = select(func.max(UsageCharge.seq)).where(UsageCharge.billed_month == month)
    if tenant is not None:
        query = query.where(UsageCharge.tenant_id == tenant)
    return int(await session.scalar(query) or 0)


async def is_closed(session: AsyncSession, month: date) -> bool:
    query = select(BillingPeriod.month).where(BillingPeriod.month == month)
    return await session.scalar(query) is not None


async def ask(session: SystemWrite, wanted: dict[str, Any]) -> BillingExport:
    """The export with that id: new, or as it is; one that failed or was superseded is to be made again."""
    new = insert(BillingExport).values(wanted)
    again = new.on_conflict_do_update(
        index_elements=[BillingExport.id],
        set_={"state": "waiting", "reason": None, "failure": None, "finished_at": None},
        where=BillingExport.state.in_(("failed", "superseded")),
    )
    await session.execute(again)
    query = select(BillingExport).where(BillingExport.id == wanted["id"])
    return (await session.scalars(query.execution_options(populate_existing=True))).one()


async def closed_without_export(session: SystemRead) -> list[date]:
    """Closed months of which there is no export of all tenants yet."""
    there = select(BillingExport.month).where(BillingExport.tenant_id.is_(None), BillingExport.closed)
    query = select(BillingPeriod.month).where(BillingPeriod.month.not_in(there)).order_by(BillingPeriod.month)
    return list(await session.scalars(query))


async def find(session: AsyncSession, tenant: UUID | None, export: str) -> BillingExport | None:
    return (await session.scalars(_scope(tenant).where(BillingExport.id == export))).one_or_none()


async def page(
    session: AsyncSession, tenant: UUID | None, wanted: ExportFilters, after: ExportPlace | None, limit: int
) -> list[BillingExport]:
    """Newest first."""
    query = _scope(tenant).order_by(BillingExport.created_at.desc(), BillingExport.id.desc()).limit(limit)
    if after is not None:
        query = query.where(beyond([BillingExport.created_at, BillingExport.id], after, descending=True))
    if wanted.state is not None:
        query = query.where(BillingExport.state == wanted.state)
    if wanted.month is not None:
        query = query.where(BillingExport.month == wanted.month)
    return list(await session.scalars(query))


async def waiting(session: SystemRead, limit: int) -> list[BillingExport]:
    """Oldest first."""
    query = (
        select(BillingExport)
        .where(BillingExport.state == "waiting")
        .order_by(BillingExport.created_at, BillingExport.id)
        .limit(limit)
    )
    return list(await session.scalars(query))


async def older_snapshots(session: SystemRead, export: BillingExport, kept: int) -> list[BillingExport]:
    """Finished snapshots of the same open month, but for the newest `kept`."""
    query = (
        _scope(export.tenant_id)
        .where(BillingExport.month == export.month, ~BillingExport.closed, BillingExport.state == "done")
        .order_by(BillingExport.through_seq.desc(), BillingExport.id)
        .offset(kept)
    )
    return list(await session.scalars(query))


async def keep_manifest(session: SystemWrite, export: str, manifest: bytes) -> bytes:
    """The export's manifest: the one that was kept first, whoever asks."""
    statement = (
        update(BillingExport)
        .where(BillingExport.id == export, BillingExport.manifest.is_(None))
        .values(manifest=manifest)
        .execution_options(synchronize_session=False)
    )
    await session.execute(statement)
    kept = await session.scalar(select(BillingExport.manifest).where(BillingExport.id == export))
    assert kept is not None
    return kept


async def move(
    session: SystemWrite, export: str, state: str, reason: str | None = None, failure: str | None = None
) -> None:
    statement = (
        update(BillingExport)
        .where(BillingExport.id == export)
        .values(state=state, reason=reason, failure=failure, finished_at=func.now())
        .execution_options(synchronize_session=False)
    )
    await session.execute(statement)


async def groups(session: SystemRead, export: BillingExport) -> AsyncIterator[list[ChargeGroup]]:
    """In pages, tenant by tenant, in one order. The rows up to `through_seq` never change, so neither do the
    groups."""
    for tenant in await _tenants(session, export):
        given = {"month": export.month, "through": export.through_seq, "tenant": tenant}
        found = await session.stream(_GROUPS, given)
        async for rows in found.partitions(PAGE_ROWS):
            yield [_group(row) for row in rows]


async def _tenants(session: SystemRead, export: BillingExport) -> list[UUID]:
    if export.tenant_id is not None:
        return [export.tenant_id]
    query = select(UsageCharge.tenant_id).where(UsageCharge.billed_month == export.month).distinct()
    return list(await session.scalars(query.order_by(UsageCharge.tenant_id)))


async def exact_sum(session: SystemRead, export: BillingExport) -> int:
    """Of the charges in it, in units of 10⁻¹² of the currency."""
    query = select(func.sum(UsageCharge.amount)).where(
        UsageCharge.billed_month == export.month, UsageCharge.seq <= export.through_seq
    )
    if export.tenant_id is not None:
        query = query.where(UsageCharge.tenant_id == export.tenant_id)
    return int(await session.scalar(query) or 0)


async def statements(session: SystemRead, export: BillingExport) -> list[tuple[str, Residue]]:
    """Invoice id and rounding of each tenant in scope, in the order of tenants."""
    query = (
        select(BillingStatement, Tenant.name)
        .join(Tenant, Tenant.id == BillingStatement.tenant_id)
        .where(BillingStatement.month == export.month)
        .order_by(BillingStatement.tenant_id)
    )
    if export.tenant_id is not None:
        query = query.where(BillingStatement.tenant_id == export.tenant_id)
    return [
        (row.id, Residue(row.tenant_id, name, row.currency, int(row.rounded) - int(row.exact)))
        for row, name in await session.execute(query)
    ]


async def num_unknown(session: SystemRead, export: BillingExport) -> int:
    query = (
        select(func.count())
        .select_from(UsageUncounted)
        .where(
            UsageUncounted.purpose == "tenant",
            UsageUncounted.outcome != TAKEN_OVER,
            UsageUncounted.ended_at >= start_of(export.month),
            UsageUncounted.ended_at < end_of(export.month),
        )
    )
    if export.tenant_id is not None:
        query = query.where(UsageUncounted.tenant_id == export.tenant_id)
    return int(await session.scalar(query) or 0)


async def num_unpriced(session: SystemRead, export: BillingExport) -> int:
    """Buckets of the month with usage that no price covers."""
    query = (
        select(func.count())
        .select_from(UsageUnpriced)
        .where(UsageUnpriced.bucket >= start_of(export.month), UsageUnpriced.bucket < end_of(export.month))
    )
    if export.tenant_id is not None:
        query = query.where(UsageUnpriced.tenant_id == export.tenant_id)
    return int(await session.scalar(query) or 0)


def _scope(tenant: UUID | None) -> Any:
    query = select(BillingExport)
    if tenant is None:
        return query.where(BillingExport.tenant_id.is_(None))
    return query.where(BillingExport.tenant_id == tenant)


def _group(row: Row[Any]) -> ChargeGroup:
    hour: datetime = row.hour
    return ChargeGroup(
        hour=hour,
        tenant_id=row.tenant_id,
        tenant_name=row.tenant_name or str(row.tenant_id),
        key_id=row.key_id,
        base_id=row.base_id,
        base_name=row.base_name or row.base_id,
        owner_id=row.owner_id,
        owner_name=row.owner_name,
        adapter_name=row.adapter_name,
        adapter_version=row.adapter_version,
        artefact=row.artefact,
        service_class=row.service_class,
        source=row.source,
        version=row.version,
        price_id=row.price_id,
        currency=row.currency,
        prices=(row.input_price, row.cached_price, row.output_price),
        tokens=(int(row.input), int(row.cached), int(row.output)),
        requests=int(row.requests),
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        rated_at=row.rated_at,
    )
