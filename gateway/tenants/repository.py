"""All SQL of tenants. Only operators list and change them, so sessions here are the system's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from sqlalchemy import func, select, update

from gateway.db import SystemRead, SystemWrite
from gateway.models import Tenant


async def add(session: SystemWrite, tenant: Tenant) -> None:
    """Raises `IntegrityError` when the name is taken."""
    session.add(tenant)
    await session.flush()
    await session.refresh(tenant)


async def find(session: SystemRead, tenant: UUID) -> Tenant | None:
    return (await session.scalars(select(Tenant).where(Tenant.id == tenant))).one_or_none()


async def page(
    session: SystemRead, after: UUID | None, limit: int, only: Collection[UUID] | None = None
) -> list[Tenant]:
    """Oldest first; `only` these, or all."""
    statement = select(Tenant).order_by(Tenant.id).limit(limit)
    if only is not None:
        statement = statement.where(Tenant.id.in_(only))
    if after is not None:
        statement = statement.where(Tenant.id > after)
    return list((await session.scalars(statement)).all())


async def change(session: SystemWrite, tenant: UUID, values: Mapping[str, str | int | None]) -> Tenant | None:
    """The tenant with `values` and its next epoch; None when there is none."""
    statement = (
        update(Tenant)
        .where(Tenant.id == tenant)
        .values(**values, epoch=Tenant.epoch + 1, updated_at=func.now())
        .returning(Tenant)
        .execution_options(synchronize_session=False)
    )
    return (await session.scalars(statement)).one_or_none()
