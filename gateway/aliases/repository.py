"""All SQL of aliases. Whoever changes them holds the adapter's lock (`catalog/repository.py`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import Row, func, or_, select
from sqlalchemy.dialects.postgresql import insert

from gateway.aliases.spread import Spread
from gateway.catalog.repository import proved_on
from gateway.db import TenantRead, TenantWrite
from gateway.models import Adapter, AdapterVersion, Alias, Rollout, VersionState
from gateway.models.rollout import ACTIVE
from gateway.paging import Order

BY_NAME: Order[tuple[str]] = Order("aliases", str)


async def find(session: TenantRead, adapter_id: UUID, alias: str) -> Alias | None:
    return await session.scalar(select(Alias).where(Alias.adapter_id == adapter_id, Alias.name == alias))


async def find_spread(session: TenantRead, adapter_id: UUID, alias: str) -> Spread | None:
    """None for an alias of one version, and for none at all."""
    query = select(Alias.spread).where(Alias.adapter_id == adapter_id, Alias.name == alias)
    row = await session.scalar(query)
    return None if row is None else Spread.of_row(row)


async def list_aliases(session: TenantRead, adapter_id: UUID, after: str, limit: int) -> Sequence[Alias]:
    """By name, after the name `after`."""
    query = select(Alias).where(Alias.adapter_id == adapter_id, Alias.name > after)
    return (await session.scalars(query.order_by(Alias.name).limit(limit))).all()


async def num_aliases(session: TenantRead, adapter_id: UUID) -> int:
    query = select(func.count()).select_from(Alias).where(Alias.adapter_id == adapter_id)
    return int(await session.scalar(query) or 0)


async def ready_versions(
    session: TenantRead, adapter_id: UUID, numbers: Collection[int]
) -> Sequence[Row[int, str, list[str] | None]]:
    """(number, artefact, digests as `proved_on`) of those versions that may serve."""
    found = await session.execute(
        select(AdapterVersion.number, AdapterVersion.artefact, proved_on().label("digests")).where(
            AdapterVersion.adapter_id == adapter_id,
            AdapterVersion.number.in_(sorted(numbers)),
            AdapterVersion.state == VersionState.READY,
            AdapterVersion.lost_at.is_(None),
        )
    )
    return found.all()


async def put(
    session: TenantWrite, adapter: Adapter, alias: str, version: int, spread: Spread | None
) -> Alias:
    """Makes or moves it; gives the row as it is now, under a new revision."""
    told = {"version": version, "spread": None if spread is None else spread.row()}
    row = {"adapter_id": adapter.id, "tenant_id": adapter.tenant_id, "name": alias, **told}
    statement = (
        insert(Alias)
        .values(row)
        .on_conflict_do_update(index_elements=["adapter_id", "name"], set_={**told, "updated_at": func.now()})
        .returning(Alias)
        .execution_options(populate_existing=True)
    )
    return (await session.scalars(statement)).one()


async def remove(session: TenantWrite, alias: Alias) -> None:
    await session.delete(alias)
    await session.flush()


async def active_rollouts(session: TenantRead, adapter_id: UUID) -> dict[str, UUID]:
    """Alias → the rollout that steps it."""
    query = select(Rollout.alias, Rollout.id).where(
        Rollout.adapter_id == adapter_id, Rollout.state.in_(ACTIVE)
    )
    return {row.alias: row.id for row in await session.execute(query)}


async def active_rollout(session: TenantRead, adapter_id: UUID, alias: str) -> UUID | None:
    """The rollout that steps the alias."""
    query = select(Rollout.id).where(
        Rollout.adapter_id == adapter_id, Rollout.alias == alias, Rollout.state.in_(ACTIVE)
    )
    return await session.scalar(query)


async def sharing(session: TenantRead, adapter_id: UUID, number: int) -> str | None:
    """The name of an alias of which the version has a part, or into which it is being rolled out."""
    spread = select(Alias.name, Alias.spread).where(Alias.adapter_id == adapter_id, Alias.spread.is_not(None))
    for name, row in await session.execute(spread.order_by(Alias.name)):
        if row is not None and number in Spread.of_row(row).weights:
            return str(name)
    on_its_way = select(Rollout.alias).where(
        Rollout.adapter_id == adapter_id,
        Rollout.state.in_(ACTIVE),
        or_(Rollout.from_version == number, Rollout.to_version == number),
    )
    found: str | None = await session.scalar(on_its_way.limit(1))
    return found
