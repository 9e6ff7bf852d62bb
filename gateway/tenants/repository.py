"""All SQL of tenants. Only operators list and change them, so sessions here are the system's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select, update

from gateway.db import SystemRead, SystemWrite
from gateway.models import Tenant
from gateway.paging import ById, Order, beyond, starts_with

BY_ID: Order[ById] = Order("tenants", UUID)


@dataclass(frozen=True, slots=True)
class TenantFilters:
    """None = any."""

    status: str | None = None
    name_prefix: str | None = None
    since: datetime | None = None
    until: datetime | None = None


async def add(session: SystemWrite, tenant: Tenant) -> None:
    """Raises `IntegrityError` when the name is taken."""
    session.add(tenant)
    await session.flush()
    await session.refresh(tenant)


async def find(session: SystemRead, tenant: UUID) -> Tenant | None:
    return (await session.scalars(select(Tenant).where(Tenant.id == tenant))).one_or_none()


async def page(session: SystemRead, wanted: TenantFilters, after: ById | None, limit: int) -> list[Tenant]:
    """Oldest first."""
    statement = select(Tenant).order_by(Tenant.id).limit(limit)
    if after is not None:
        statement = statement.where(beyond([Tenant.id], after, descending=False))
    if wanted.status is not None:
        statement = statement.where(Tenant.status == wanted.status)
    if wanted.name_prefix is not None:
        statement = statement.where(starts_with(Tenant.name, wanted.name_prefix))
    if wanted.since is not None:
        statement = statement.where(Tenant.created_at >= wanted.since)
    if wanted.until is not None:
        statement = statement.where(Tenant.created_at < wanted.until)
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
