"""All SQL of checks of the store, and of versions that it has lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import delete, func, select, update

from gateway.catalog.stored import is_kept
from gateway.db import SystemRead, SystemWrite, TenantRead, TenantWrite
from gateway.models import Adapter, AdapterVersion, CheckState, StoreCheck
from gateway.paging import ById, Order, beyond
from gateway.principal import TenantId

NEWEST_FIRST: Order[ById] = Order("store_checks", UUID)
KEPT: Final = 100
"""Checks that are remembered, the newest."""

OPEN: Final = (CheckState.WAITING, CheckState.RUNNING)

Version = tuple[str, int, str]
"""Adapter, number, state."""


async def mark_lost(session: TenantWrite, tenant: TenantId, artefact: str) -> list[Version]:
    """Versions that keep the artefact and were not marked before."""
    marked = await session.execute(
        update(AdapterVersion)
        .where(
            AdapterVersion.tenant_id == tenant,
            AdapterVersion.artefact == artefact,
            AdapterVersion.adapter_id == Adapter.id,
            AdapterVersion.lost_at.is_(None),
            is_kept(),
        )
        .values(lost_at=func.now())
        .returning(Adapter.name, AdapterVersion.number, AdapterVersion.state)
        .execution_options(synchronize_session=False)
    )
    return [(name, number, state) for name, number, state in marked]


async def lost_versions(session: TenantRead, tenant: TenantId, artefact: str) -> list[Version]:
    found = await session.execute(
        select(Adapter.name, AdapterVersion.number, AdapterVersion.state)
        .join(Adapter, Adapter.id == AdapterVersion.adapter_id)
        .where(
            AdapterVersion.tenant_id == tenant,
            AdapterVersion.artefact == artefact,
            AdapterVersion.lost_at.is_not(None),
        )
    )
    return [(name, number, state) for name, number, state in found]


async def add(session: SystemWrite, check: StoreCheck) -> StoreCheck:
    session.add(check)
    await session.flush()
    await session.refresh(check)
    return check


async def find(session: SystemRead, check: UUID) -> StoreCheck | None:
    return await session.get(StoreCheck, check)


async def page(session: SystemRead, start: ById | None, limit: int) -> Sequence[StoreCheck]:
    """Newest first: their ids count up with time."""
    query = select(StoreCheck).order_by(StoreCheck.id.desc()).limit(limit)
    if start is not None:
        query = query.where(beyond((StoreCheck.id,), start, descending=True))
    return (await session.scalars(query)).all()


async def open_check(session: SystemRead) -> StoreCheck | None:
    """The one that waits or runs: there is one at most."""
    query = select(StoreCheck).where(StoreCheck.state.in_(OPEN)).order_by(StoreCheck.id).limit(1)
    return await session.scalar(query)


async def move(session: SystemWrite, check: UUID, **values: Any) -> None:
    await session.execute(
        update(StoreCheck)
        .where(StoreCheck.id == check)
        .values(**values)
        .execution_options(synchronize_session=False)
    )


async def forget_old(session: SystemWrite) -> None:
    newest = select(StoreCheck.id).order_by(StoreCheck.id.desc()).limit(KEPT)
    await session.execute(
        delete(StoreCheck).where(StoreCheck.id.not_in(newest)).execution_options(synchronize_session=False)
    )


async def num_lost(session: SystemRead) -> int:
    """Versions that do not resolve because their object is lost."""
    query = select(func.count()).where(AdapterVersion.lost_at.is_not(None), is_kept())
    return int(await session.scalar(query) or 0)
