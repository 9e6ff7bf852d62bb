"""All SQL of statements: a tenant's own rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from uuid import UUID

from sqlalchemy import func, select, text

from gateway.billing.meters import Metered, metered
from gateway.billing.months import end_of, start_of
from gateway.db import TenantRead
from gateway.models import BillingPeriod, BillingStatement, UsageCharge, UsageUnpriced

_LINES = text(
    """
    SELECT base_id, owner_id, adapter_name, service_class, source, version, price_id,
           input_price, cached_price, output_price,
           date_trunc('month', timezone('UTC', bucket))::date AS used_month,
           sum(requests) AS requests, sum(input_tokens) AS input, sum(cached_tokens) AS cached,
           sum(output_tokens) AS output
    FROM usage_charges
    WHERE tenant_id = :tenant AND billed_month = :month
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    HAVING sum(requests) <> 0 OR sum(input_tokens) <> 0 OR sum(cached_tokens) <> 0 OR sum(output_tokens) <> 0
    ORDER BY 11, 1, 2 NULLS FIRST, 3 NULLS FIRST, 4, 5, 6, 7
    LIMIT :most
    """
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine:
    """Tokens of one kind at one price. `used_month` differs from the statement's for a correction."""

    base_id: str
    owner_id: UUID | None
    adapter: str | None
    service_class: str
    used_month: date
    version: int
    price_id: UUID
    metered: Metered


@dataclass(frozen=True, slots=True)
class MonthTotal:
    """Units of 10⁻¹² of the currency."""

    month: date
    currency: str
    exact: int


async def lines(session: TenantRead, tenant: UUID, month: date, most: int) -> list[StatementLine]:
    """Of up to `most` groups of charges; each gives up to three lines."""
    rows = await session.execute(_LINES, {"tenant": tenant, "month": month, "most": most})
    return [
        StatementLine(
            base_id=row.base_id,
            owner_id=row.owner_id,
            adapter=row.adapter_name,
            service_class=row.service_class,
            used_month=row.used_month,
            version=row.version,
            price_id=row.price_id,
            metered=each,
        )
        for row in rows
        for each in metered(
            row.source,
            (int(row.input), int(row.cached), int(row.output)),
            (row.input_price, row.cached_price, row.output_price),
        )
    ]


async def month_totals(
    session: TenantRead, tenant: UUID, before: date | None = None, limit: int | None = None
) -> list[MonthTotal]:
    """Newest first, below the month `before`."""
    query = (
        select(UsageCharge.billed_month, func.min(UsageCharge.currency), func.sum(UsageCharge.amount))
        .where(UsageCharge.tenant_id == tenant)
        .group_by(UsageCharge.billed_month)
        .order_by(UsageCharge.billed_month.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(UsageCharge.billed_month < before)
    return [MonthTotal(row[0], row[1], int(row[2])) for row in await session.execute(query)]


async def closed_periods(session: TenantRead) -> dict[date, BillingPeriod]:
    return {period.month: period for period in await session.scalars(select(BillingPeriod))}


async def issued(session: TenantRead, tenant: UUID) -> dict[date, BillingStatement]:
    query = select(BillingStatement).where(BillingStatement.tenant_id == tenant)
    return {statement.month: statement for statement in await session.scalars(query)}


async def has_unpriced(session: TenantRead, tenant: UUID, month: date) -> bool:
    query = select(UsageUnpriced.bucket).where(
        UsageUnpriced.tenant_id == tenant,
        UsageUnpriced.bucket >= start_of(month),
        UsageUnpriced.bucket < end_of(month),
    )
    return await session.scalar(query.limit(1)) is not None
