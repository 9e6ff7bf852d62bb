"""All SQL of limits and budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import case, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.api_keys.repository import Found
from gateway.db import SystemRead, SystemWrite, TenantRead, TenantWrite
from gateway.limits.levels import Counter
from gateway.models import Adapter, ApiKey, BudgetRow, Tenant, UsageCharge
from gateway.principal import Period, TenantId

WHOLE_TENANT = ""
"""Stands for the key of a budget that is the whole tenant's: part of a primary key, so never null."""

_LIVE_KEYS = select(ApiKey.key_id).where(ApiKey.revoked_at.is_(None))

Values = Mapping[str, int | None]
AnyWrite = TenantWrite | SystemWrite
AnyRead = TenantRead | SystemRead


async def charged(session: AsyncSession, counter: Counter) -> int:
    """Units that the charges of the counter's period come to."""
    query = select(func.coalesce(func.sum(UsageCharge.amount), 0)).where(
        UsageCharge.tenant_id == counter.tenant,
        UsageCharge.bucket >= counter.start,
        UsageCharge.bucket < counter.end,
    )
    if counter.key_id is not None:
        query = query.where(UsageCharge.key_id == counter.key_id)
    return int(await session.scalar(query) or 0)


async def budgets_of(session: SystemRead, found: Found) -> list[BudgetRow]:
    """The tenant's, then the key's."""
    key = found.key
    query = (
        select(BudgetRow)
        .where(BudgetRow.tenant_id == key.tenant_id, BudgetRow.key_id.in_((WHOLE_TENANT, key.key_id)))
        .order_by(BudgetRow.key_id, BudgetRow.period)
    )
    return list(await session.scalars(query))


async def budgets_of_keys(session: TenantRead, tenant: TenantId, key_ids: Sequence[str]) -> list[BudgetRow]:
    query = select(BudgetRow).where(BudgetRow.tenant_id == tenant, BudgetRow.key_id.in_(key_ids))
    return list(await session.scalars(query))


async def charged_by_budget(session: SystemRead, day: date) -> list[tuple[BudgetRow, int]]:
    """Budgets of all tenants and of keys that are not revoked, each with what the charges of the period in
    which `day` lies come to, in units."""
    start = case((BudgetRow.period == Period.DAY, _midnight(day)), else_=_midnight(day.replace(day=1)))
    query = (
        select(BudgetRow, func.coalesce(func.sum(UsageCharge.amount), 0))
        .outerjoin(
            UsageCharge,
            (UsageCharge.tenant_id == BudgetRow.tenant_id)
            & or_(BudgetRow.key_id == WHOLE_TENANT, BudgetRow.key_id == UsageCharge.key_id)
            & (UsageCharge.bucket >= start)
            & (UsageCharge.bucket < _midnight(day) + timedelta(days=1)),
        )
        .where(or_(BudgetRow.key_id == WHOLE_TENANT, BudgetRow.key_id.in_(_LIVE_KEYS)))
        .group_by(BudgetRow.tenant_id, BudgetRow.key_id, BudgetRow.period)
        .order_by(BudgetRow.tenant_id, BudgetRow.key_id, BudgetRow.period)
    )
    return [(row[0], int(row[1])) for row in await session.execute(query)]


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


async def find_tenant(session: TenantRead, tenant: TenantId) -> Tenant | None:
    return (await session.scalars(select(Tenant).where(Tenant.id == tenant))).one_or_none()


async def find_key(session: TenantRead, tenant: TenantId, key_id: str) -> ApiKey | None:
    query = select(ApiKey).where(ApiKey.tenant_id == tenant, ApiKey.key_id == key_id)
    return (await session.scalars(query)).one_or_none()


async def find_adapter(
    session: TenantRead, tenant: TenantId, base_id: str, name: str, *, lock: bool = False
) -> Adapter | None:
    query = select(Adapter).where(
        Adapter.tenant_id == tenant, Adapter.base_id == base_id, Adapter.name == name
    )
    return (await session.scalars(query.with_for_update() if lock else query)).one_or_none()


async def change_key(session: TenantWrite, tenant: TenantId, key_id: str, values: Values) -> None:
    await session.execute(
        update(ApiKey).where(ApiKey.tenant_id == tenant, ApiKey.key_id == key_id).values(**values)
    )


async def change_adapter(session: TenantWrite, adapter: Adapter, values: Values) -> None:
    await session.execute(
        update(Adapter)
        .where(Adapter.tenant_id == adapter.tenant_id, Adapter.id == adapter.id)
        .values(**values)
    )


async def set_budget(session: AnyWrite, budget: BudgetRow) -> None:
    values = {
        "amount": budget.amount,
        "hard": budget.hard,
        "thresholds": budget.thresholds,
    }
    keys = {"tenant_id": budget.tenant_id, "key_id": budget.key_id, "period": budget.period}
    statement = insert(BudgetRow).values(**keys, **values)
    await session.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "key_id", "period"], set_={**values, "updated_at": func.now()}
        )
    )


async def drop_budget(session: AnyWrite, tenant: TenantId, key_id: str, period: str) -> None:
    await session.execute(
        delete(BudgetRow).where(
            BudgetRow.tenant_id == tenant, BudgetRow.key_id == key_id, BudgetRow.period == period
        )
    )


async def own_budgets(session: AnyRead, tenant: TenantId, key_id: str) -> Sequence[BudgetRow]:
    """Of the tenant itself, or of one key."""
    query = (
        select(BudgetRow)
        .where(BudgetRow.tenant_id == tenant, BudgetRow.key_id == key_id)
        .order_by(BudgetRow.period)
    )
    return (await session.scalars(query)).all()
