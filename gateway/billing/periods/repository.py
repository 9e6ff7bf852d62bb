"""All SQL of months: of closing them, which is the leader's, and of looking at them, which is operators'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

from sqlalchemy import exists, func, or_, select, text

from gateway.billing.money import round_half_up
from gateway.billing.months import end_of, month_of, next_month, start_of
from gateway.db import SystemRead, SystemWrite
from gateway.models import (
    BillingPeriod,
    BillingStatement,
    Tenant,
    UsageArrival,
    UsageCharge,
    UsageRollup,
    UsageUncounted,
    UsageUnpriced,
)
from gateway.usage.event import TAKEN_OVER

_AGREES = text(
    """
    SELECT l.prompt = c.prompt AND l.cached = c.cached AND l.completion = c.completion
    FROM (SELECT coalesce(sum(billed_prompt_tokens), 0) AS prompt,
                 coalesce(sum(billed_cached_tokens), 0) AS cached,
                 coalesce(sum(billed_completion_tokens), 0) AS completion
          FROM usage_ledger
          WHERE tenant_id = :tenant AND purpose = 'tenant' AND ended_at >= :start AND ended_at < :end) l,
         (SELECT coalesce(sum(input_tokens + cached_tokens), 0) AS prompt,
                 coalesce(sum(cached_tokens), 0) AS cached, coalesce(sum(output_tokens), 0) AS completion
          FROM usage_charges WHERE tenant_id = :tenant AND bucket >= :start AND bucket < :end) c
    """
)


async def oldest_open(session: SystemRead) -> date | None:
    """The month after the last closed one, or the first with usage; None before there was any."""
    last = await session.scalar(select(func.max(BillingPeriod.month)))
    if last is not None:
        return next_month(last)
    first = await session.scalar(select(func.min(UsageRollup.bucket)))
    return None if first is None else month_of(first)


async def num_waiting(session: SystemRead, month: date) -> int:
    """Marks of buckets of the month, or of before, that are not worked off."""
    query = select(func.count()).select_from(UsageArrival).where(UsageArrival.bucket < end_of(month))
    return int(await session.scalar(query) or 0)


async def num_uncounted(session: SystemRead, month: date) -> int:
    query = (
        select(func.count())
        .select_from(UsageUncounted)
        .where(
            UsageUncounted.purpose == "tenant",
            UsageUncounted.outcome != TAKEN_OVER,
            UsageUncounted.ended_at < end_of(month),
        )
    )
    return int(await session.scalar(query) or 0)


async def num_unpriced(session: SystemRead, month: date) -> int:
    query = select(func.count()).select_from(UsageUnpriced).where(UsageUnpriced.bucket < end_of(month))
    return int(await session.scalar(query) or 0)


async def tenants(session: SystemRead) -> list[UUID]:
    return list(await session.scalars(select(Tenant.id).order_by(Tenant.id)))


async def agrees(session: SystemRead, tenant: UUID, start: datetime, end: datetime) -> bool:
    """Whether the tokens charged of requests that ended in [start, end) are the ledger's; one statement, so
    that both are of one moment."""
    given = {"tenant": tenant, "start": start, "end": end}
    return bool((await session.execute(_AGREES, given)).scalar_one())


@dataclass(frozen=True, slots=True)
class TenantTotal:
    """What one tenant's month comes to; units of 10⁻¹² of the currency."""

    tenant: UUID
    currency: str
    exact: int


async def totals(session: SystemRead, month: date) -> list[TenantTotal]:
    query = (
        select(UsageCharge.tenant_id, func.min(UsageCharge.currency), func.sum(UsageCharge.amount))
        .join(Tenant, Tenant.id == UsageCharge.tenant_id)  # a replica may name tenants that are none
        .where(UsageCharge.billed_month == month)
        .group_by(UsageCharge.tenant_id)
        .order_by(UsageCharge.tenant_id)
    )
    return [TenantTotal(row[0], row[1], int(row[2])) for row in await session.execute(query)]


async def last_charge(session: SystemRead) -> int:
    return int(await session.scalar(select(func.max(UsageCharge.seq))) or 0)


async def close(
    session: SystemWrite, period: BillingPeriod, found: Sequence[TenantTotal], invoice_ids: Sequence[str]
) -> None:
    session.add(period)
    await session.flush()
    session.add_all(
        BillingStatement(
            id=invoice_id,
            tenant_id=each.tenant,
            month=period.month,
            currency=each.currency,
            exact=Decimal(each.exact),
            rounded=Decimal(round_half_up(each.exact, each.currency).units),
        )
        for each, invoice_id in zip(found, invoice_ids, strict=True)
    )


async def earliest_waiting(session: SystemRead) -> datetime | None:
    """End of the first request that is not charged yet."""
    found: datetime | None = await session.scalar(select(func.min(UsageArrival.earliest)))
    return found


@dataclass(frozen=True, slots=True)
class ClosedMonth:
    """`exact` and `rounded`: of its statements, in units of 10⁻¹² of the currency."""

    period: BillingPeriod
    tenants: int
    currency: str | None
    exact: int
    rounded: int


async def closed(session: SystemRead, before: date | None, limit: int) -> list[ClosedMonth]:
    """Newest first, below the month `before`."""
    statement = BillingStatement
    query = (
        select(
            BillingPeriod,
            func.count(statement.id),
            func.min(statement.currency),
            func.coalesce(func.sum(statement.exact), 0),
            func.coalesce(func.sum(statement.rounded), 0),
        )
        .outerjoin(statement, statement.month == BillingPeriod.month)
        .group_by(BillingPeriod.month)
        .order_by(BillingPeriod.month.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(BillingPeriod.month < before)
    return [
        ClosedMonth(row[0], row[1], row[2], int(row[3]), int(row[4])) for row in await session.execute(query)
    ]


async def find(session: SystemRead, month: date) -> BillingPeriod | None:
    return (await session.scalars(select(BillingPeriod).where(BillingPeriod.month == month))).one_or_none()


async def tenants_of(
    session: SystemRead, month: date, after: UUID | None, limit: int
) -> list[tuple[UUID, str]]:
    """Id and name of those that used something in the month or are billed something in it, by id."""
    used = exists().where(
        UsageRollup.tenant_id == Tenant.id,
        UsageRollup.bucket >= start_of(month),
        UsageRollup.bucket < end_of(month),
    )
    billed = exists().where(UsageCharge.tenant_id == Tenant.id, UsageCharge.billed_month == month)
    query = select(Tenant.id, Tenant.name).where(or_(used, billed)).order_by(Tenant.id).limit(limit)
    if after is not None:
        query = query.where(Tenant.id > after)
    return [(row.id, row.name) for row in await session.execute(query)]


Tokens = tuple[int, int, int]
"""Prompt, of them cached, completion."""

_TOKENS = {
    "used": "SELECT tenant_id, sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens)"
    " FROM usage_rollups WHERE bucket >= :start AND bucket < :end",
    "charged": "SELECT tenant_id, sum(input_tokens + cached_tokens), sum(cached_tokens), sum(output_tokens)"
    " FROM usage_charges WHERE bucket >= :start AND bucket < :end",
    "ledger": "SELECT tenant_id, sum(billed_prompt_tokens), sum(billed_cached_tokens),"
    " sum(billed_completion_tokens) FROM usage_ledger"
    " WHERE purpose = 'tenant' AND ended_at >= :start AND ended_at < :end",
}
Source = Literal["used", "charged", "ledger"]


async def tokens(
    session: SystemRead, source: Source, tenants: Sequence[UUID], start: datetime, end: datetime
) -> dict[UUID, Tokens]:
    """Billed ones of requests that ended in [start, end), by tenant: as summed, as charged or
    counted anew."""
    query = text(f"{_TOKENS[source]} AND tenant_id = ANY(:tenants) GROUP BY tenant_id")
    rows = await session.execute(query, {"tenants": list(tenants), "start": start, "end": end})
    return {row[0]: (int(row[1]), int(row[2]), int(row[3])) for row in rows}


async def billed(session: SystemRead, month: date, tenants: Sequence[UUID]) -> dict[UUID, TenantTotal]:
    query = (
        select(UsageCharge.tenant_id, func.min(UsageCharge.currency), func.sum(UsageCharge.amount))
        .where(UsageCharge.billed_month == month, UsageCharge.tenant_id.in_(tenants))
        .group_by(UsageCharge.tenant_id)
    )
    return {row[0]: TenantTotal(row[0], row[1], int(row[2])) for row in await session.execute(query)}


async def statements_of(session: SystemRead, month: date, tenants: Sequence[UUID]) -> dict[UUID, str]:
    query = select(BillingStatement.tenant_id, BillingStatement.id).where(
        BillingStatement.month == month, BillingStatement.tenant_id.in_(tenants)
    )
    return {row[0]: row[1] for row in await session.execute(query)}


async def unpriced_of(session: SystemRead, month: date, tenants: Sequence[UUID]) -> dict[UUID, int]:
    query = (
        select(UsageUnpriced.tenant_id, func.count())
        .where(
            UsageUnpriced.tenant_id.in_(tenants),
            UsageUnpriced.bucket >= start_of(month),
            UsageUnpriced.bucket < end_of(month),
        )
        .group_by(UsageUnpriced.tenant_id)
    )
    return {row[0]: int(row[1]) for row in await session.execute(query)}


async def uncounted_of(session: SystemRead, month: date, tenants: Sequence[UUID]) -> dict[UUID, int]:
    query = (
        select(UsageUncounted.tenant_id, func.count())
        .where(
            UsageUncounted.tenant_id.in_(tenants),
            UsageUncounted.purpose == "tenant",
            UsageUncounted.outcome != TAKEN_OVER,
            UsageUncounted.ended_at >= start_of(month),
            UsageUncounted.ended_at < end_of(month),
        )
        .group_by(UsageUncounted.tenant_id)
    )
    return {row[0]: int(row[1]) for row in await session.execute(query)}
