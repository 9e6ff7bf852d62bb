"""All SQL of retention."""

from __future__ import annotations

from datetime import datetime
from typing import Final, cast
from uuid import UUID

from sqlalchemy import ColumnElement, Table, delete, func, literal, select, tuple_
from sqlalchemy.dialects.postgresql import insert

from gateway.db import SystemRead, SystemWrite
from gateway.models import RetentionRule
from gateway.retention.kinds import Kind

BATCH_ROWS: Final = 1_000


async def rules_of(session: SystemRead, tenant: UUID) -> dict[str, int]:
    """Days by kind, where they differ from the default."""
    query = select(RetentionRule).where(RetentionRule.tenant_id == tenant)
    return {rule.kind: rule.days for rule in await session.scalars(query)}


async def tenants_with(session: SystemRead, kind: str) -> dict[UUID, int]:
    """Days by tenant."""
    query = select(RetentionRule).where(RetentionRule.kind == kind)
    return {rule.tenant_id: rule.days for rule in await session.scalars(query)}


async def put(session: SystemWrite, tenant: UUID, kind: str, days: int) -> None:
    new = insert(RetentionRule).values(tenant_id=tenant, kind=kind, days=days)
    await session.execute(
        new.on_conflict_do_update(
            index_elements=["tenant_id", "kind"], set_={"days": days, "updated_at": func.now()}
        )
    )


async def forget(session: SystemWrite, tenant: UUID, kind: str) -> None:
    """The default holds again."""
    await session.execute(
        delete(RetentionRule).where(RetentionRule.tenant_id == tenant, RetentionRule.kind == kind)
    )


async def sweep_tenant(session: SystemWrite, kind: Kind, tenant: UUID, before: datetime) -> int:
    """At most `BATCH_ROWS` of a tenant's rows that are older; how many went."""
    return await _sweep(session, kind, before, _table(kind).c.tenant_id == tenant)


async def sweep_others(session: SystemWrite, kind: Kind, but: list[UUID], before: datetime) -> int:
    """Of every tenant without a rule of its own."""
    column = _table(kind).c.tenant_id
    return await _sweep(session, kind, before, column.is_not(None) & column.not_in(but))


async def _sweep(session: SystemWrite, kind: Kind, before: datetime, whose: ColumnElement[bool]) -> int:
    table = _table(kind)
    keys = list(table.primary_key.columns)
    old = select(*keys).where(whose, kind.age < before)
    if kind.only is not None:
        old = old.where(kind.only)
    gone = await session.execute(
        delete(table)
        .where(tuple_(*keys).in_(old.limit(BATCH_ROWS)))
        .returning(literal(1))
        .execution_options(synchronize_session=False)
    )
    return len(gone.all())


def _table(kind: Kind) -> Table:
    return cast(Table, kind.table.__table__)
