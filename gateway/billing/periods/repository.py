"""All SQL of closing months. The leader's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from sqlalchemy import func, select, text

from gateway.billing.money import round_half_up
from gateway.billing.months import end_of, month_of, next_month
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
