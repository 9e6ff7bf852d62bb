"""All SQL of tenants. Only operators list and change them, so sessions here are the system's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import func, select, update

from gateway.db import SystemRead, SystemWrite
from gateway.models import Offboarding, OffboardingState, PurgeStep, Tenant
from gateway.paging import ById, Order, beyond, starts_with

BY_ID: Order[ById] = Order("tenants", UUID)


@dataclass(frozen=True, slots=True)
class TenantFilters:
    """None = any."""

    status: str | None = None
    lifecycle: str | None = None
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


async def lock(session: SystemWrite, tenant: UUID) -> Tenant | None:
    """The row, until the transaction ends: whoever moves the tenant's life on holds it."""
    return await session.scalar(select(Tenant).where(Tenant.id == tenant).with_for_update())


async def open_offboarding(session: SystemRead, tenant: UUID) -> Offboarding | None:
    """The one that is not over."""
    open_states = (OffboardingState.WAITING, OffboardingState.PURGING)
    query = select(Offboarding).where(Offboarding.tenant_id == tenant, Offboarding.state.in_(open_states))
    return await session.scalar(query)


async def last_offboarding(session: SystemRead, tenant: UUID) -> tuple[Offboarding, list[PurgeStep]] | None:
    """The newest, with what its purge did so far."""
    query = select(Offboarding).where(Offboarding.tenant_id == tenant)
    last = await session.scalar(query.order_by(Offboarding.requested_at.desc()).limit(1))
    if last is None:
        return None
    steps = select(PurgeStep).where(PurgeStep.offboarding_id == last.id).order_by(PurgeStep.kind)
    return last, list(await session.scalars(steps))


async def add_offboarding(session: SystemWrite, offboarding: Offboarding) -> None:
    session.add(offboarding)
    await session.flush()
    await session.refresh(offboarding)


async def undo_offboarding(session: SystemWrite, offboarding: Offboarding, by: str) -> bool:
    """False when its purge has begun."""
    moved = await session.execute(
        update(Offboarding)
        .where(Offboarding.id == offboarding.id, Offboarding.state == OffboardingState.WAITING)
        .values(state=OffboardingState.UNDONE, ended_by=by, ended_at=func.now())
        .returning(Offboarding.id)
        .execution_options(synchronize_session=False)
    )
    return moved.first() is not None


async def page(
    session: SystemRead,
    wanted: TenantFilters,
    after: ById | None,
    limit: int,
    only: Collection[UUID] | None = None,
) -> list[Tenant]:
    """Oldest first; `only` these, or all."""
    statement = select(Tenant).order_by(Tenant.id).limit(limit)
    if only is not None:
        statement = statement.where(Tenant.id.in_(only))
    if after is not None:
        statement = statement.where(beyond([Tenant.id], after, descending=False))
    if wanted.status is not None:
        statement = statement.where(Tenant.status == wanted.status)
    if wanted.lifecycle is not None:
        statement = statement.where(Tenant.lifecycle == wanted.lifecycle)
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
        .execution_options(synchronize_session=False, populate_existing=True)  # it may be locked
    )
    return (await session.scalars(statement)).one_or_none()
