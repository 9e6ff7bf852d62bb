"""All SQL of placements. A tenant's own session sees its own rows; operators' and control's see all."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Select, cast, delete, func, select, text
from sqlalchemy.dialects.postgresql import JSONPATH, insert
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.catalog.names import LIVE
from gateway.catalog.repository import Line
from gateway.db import SystemRead, SystemWrite, TenantWrite
from gateway.models import Adapter, AdapterVersion, Alias, Placement, PlacementQuota, VersionState
from gateway.paging import Order
from gateway.principal import TenantId

BY_ADAPTER: Order[tuple[str, str]] = Order("placement-by-adapter", str, str)
MOST_PLACED: Final = 2_000
"""Placements that control applies, of the base's, oldest first."""
LAST_ATTEMPTS: Final = 20_000
"""Of the ledger: what they were for is hot."""
HALF_LIFE_S: Final = 600.0
"""An attempt counts half as much when another ended so much later."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement and a version that it stands for now."""

    placement: Placement
    adapter: str
    version: int
    artefact: str
    num_bytes: int
    is_part: bool = False  # of `live`, most of which goes to another version

    @property
    def bytes_wanted(self) -> int:
        return self.num_bytes * self.placement.replicas

    @property
    def slots_wanted(self) -> int:
        return self.placement.replicas if self.placement.tier == "device" else 0


@dataclass(frozen=True, slots=True)
class Named:
    """Whose artefact it is; the newest version where several have it."""

    artefact: str
    tenant: UUID
    adapter: str
    version: int


@dataclass(frozen=True, slots=True)
class PlacedFilters:
    """None = any. `replica`: URL of one that holds it; `tier`: in which some replica does."""

    tenant: UUID | None = None
    name_prefix: str | None = None
    replica: str | None = None
    tier: str | None = None
    wanted: bool | None = None


@dataclass(frozen=True, slots=True)
class Heat:
    """An adapter that was asked for lately."""

    artefact: str
    owner: UUID
    adapter: str


async def find(session: AsyncSession, line: Line, name: str) -> Placement | None:
    query = (
        select(Placement)
        .join(Adapter, Adapter.id == Placement.adapter_id)
        .where(Adapter.tenant_id == line.tenant, Adapter.base_id == line.base_id, Adapter.name == name)
    )
    return await session.scalar(query)


async def standing(session: AsyncSession, line: Line, name: str) -> tuple[int, str] | None:
    """(number, artefact) of the ready version that the adapter's placement means, or `live` without one: the
    one that most of it goes to."""
    number = func.coalesce(Placement.version, Alias.version)
    query = (
        select(AdapterVersion.number, AdapterVersion.artefact)
        .select_from(Adapter)
        .outerjoin(Placement, Placement.adapter_id == Adapter.id)
        .outerjoin(Alias, (Alias.adapter_id == Adapter.id) & (Alias.name == LIVE))
        .join(AdapterVersion, (AdapterVersion.adapter_id == Adapter.id) & (AdapterVersion.number == number))
        .where(Adapter.tenant_id == line.tenant, Adapter.base_id == line.base_id, Adapter.name == name)
        .where(AdapterVersion.state == VersionState.READY)
    )
    row = (await session.execute(query)).first()
    return None if row is None else (row[0], row[1])


async def put(session: TenantWrite, adapter: Adapter, values: dict[str, Any]) -> None:
    row = {"adapter_id": adapter.id, "tenant_id": adapter.tenant_id, **values}
    await session.execute(
        insert(Placement)
        .values(row)
        .on_conflict_do_update(index_elements=["adapter_id"], set_={**values, "updated_at": func.now()})
    )


async def remove(session: TenantWrite, adapter: Adapter) -> bool:
    gone = await session.execute(
        delete(Placement).where(Placement.adapter_id == adapter.id).returning(Placement.adapter_id)
    )
    return gone.first() is not None


async def lock_tenant(session: TenantWrite, tenant: TenantId) -> None:
    """Until the transaction ends nobody else changes what the tenant has placed."""
    await session.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"), {"key": f"placements {tenant}"}
    )


async def placed_by(session: AsyncSession, line: Line) -> list[Placed]:
    """What the tenant has placed, of versions that may serve; oldest first, then the parts of `live` beside
    them: where there is no room for all, what most requests go to has it."""
    own = Placement.tenant_id == line.tenant
    rows = await session.execute(_placed(line.base_id).where(own))
    parts = await session.execute(_parts(line.base_id).where(own))
    return [*(Placed(*row) for row in rows), *(Placed(*row, is_part=True) for row in parts)]


async def placed(session: SystemRead, base_id: str) -> list[Placed]:
    """All tenants', in the same order."""
    rows = await session.execute(_placed(base_id).limit(MOST_PLACED))
    parts = await session.execute(_parts(base_id).limit(MOST_PLACED))
    return [*(Placed(*row) for row in rows), *(Placed(*row, is_part=True) for row in parts)]


async def named(session: SystemRead, base_id: str, artefacts: Collection[str]) -> dict[str, Named]:
    """Of versions that are not retired."""
    query = (
        select(AdapterVersion.artefact, Adapter.tenant_id, Adapter.name, AdapterVersion.number)
        .join(Adapter, Adapter.id == AdapterVersion.adapter_id)
        .where(
            AdapterVersion.artefact.in_(artefacts),
            Adapter.base_id == base_id,
            AdapterVersion.state != VersionState.RETIRED,
        )
        .order_by(AdapterVersion.artefact, AdapterVersion.number)
    )
    return {row[0]: Named(*row) for row in await session.execute(query)}


_PAGE = text(
    """
    WITH named AS (
      SELECT DISTINCT ON (v.artefact) v.artefact, a.tenant_id, a.name, v.number
      FROM adapter_versions v JOIN adapters a ON a.id = v.adapter_id
      WHERE v.artefact = ANY(CAST(:artefacts AS text[])) AND a.base_id = :base_id AND v.state <> 'retired'
      ORDER BY v.artefact, v.number DESC
    )
    SELECT s.artefact, n.tenant_id, n.name, n.number
    FROM unnest(CAST(:artefacts AS text[])) AS s (artefact)
    LEFT JOIN named n ON n.artefact = s.artefact
    WHERE (CAST(:prefix AS text) IS NULL OR starts_with(n.name, CAST(:prefix AS text)))
      AND (CAST(:tenant AS uuid) IS NULL OR n.tenant_id = CAST(:tenant AS uuid))
      AND (coalesce(n.name, '') COLLATE "C", s.artefact COLLATE "C")
        > (CAST(:name AS text), CAST(:artefact AS text))
    ORDER BY coalesce(n.name, '') COLLATE "C", s.artefact COLLATE "C"
    LIMIT :most
    """
)


async def page_of(
    session: SystemRead,
    base_id: str,
    artefacts: Collection[str],
    wanted: PlacedFilters,
    after: tuple[str, str],
    limit: int,
) -> list[tuple[str, Named | None]]:
    """Of these artefacts, by their adapters' names; those that no version has any more come first."""
    name, artefact = after
    given = {
        "artefacts": list(artefacts),
        "base_id": base_id,
        "prefix": wanted.name_prefix,
        "tenant": wanted.tenant,
        "name": name,
        "artefact": artefact,
        "most": limit,
    }
    rows = await session.execute(_PAGE, given)
    return [(row[0], None if row[1] is None else Named(*row)) for row in rows]


async def quota(session: AsyncSession, tenant: TenantId) -> PlacementQuota | None:
    """None: the default holds."""
    return await session.get(PlacementQuota, tenant)


async def quotas(session: SystemRead, tenants: Collection[UUID]) -> dict[UUID, PlacementQuota]:
    """Those that differ from the default."""
    query = select(PlacementQuota).where(PlacementQuota.tenant_id.in_(tenants))
    return {row.tenant_id: row for row in await session.scalars(query)}


async def set_quota(session: SystemWrite, tenant: TenantId, slots: int, num_bytes: int) -> None:
    values = {"slots": slots, "bytes": num_bytes}
    await session.execute(
        insert(PlacementQuota)
        .values(tenant_id=tenant, **values)
        .on_conflict_do_update(index_elements=["tenant_id"], set_={**values, "updated_at": func.now()})
    )


_HOT = text(
    """
    WITH last AS (
      SELECT owner_id, artefact, adapter_name, ended_at, purpose FROM usage_ledger
      WHERE base_id = :base_id ORDER BY request_id DESC LIMIT :attempts
    )
    SELECT artefact, owner_id, min(adapter_name)
    FROM last, (SELECT max(ended_at) AS at FROM last) newest
    WHERE artefact IS NOT NULL AND owner_id IS NOT NULL AND purpose = 'tenant'
      AND EXISTS (
        SELECT FROM adapter_versions v
        WHERE v.tenant_id = owner_id AND v.artefact = last.artefact AND v.state = 'ready'
      )
    GROUP BY artefact, owner_id
    ORDER BY sum(power(2.0, -least(extract(epoch FROM newest.at - ended_at), 36000.0) / :half_life_s)) DESC,
             artefact
    LIMIT :most
    """
)


async def hot(session: SystemRead, base_id: str, most: int) -> list[Heat]:
    """What was asked for lately, hottest first: off the end of the ledger, so that it outlives everybody's
    memory, and costs the same however much is asked for."""
    given = {"base_id": base_id, "attempts": LAST_ATTEMPTS, "half_life_s": HALF_LIFE_S, "most": most}
    rows = await session.execute(_HOT, given)
    return [Heat(artefact, owner, name or "") for artefact, owner, name in rows]


Columns = Select[Placement, str, int, str, int]


def _placed(base_id: str) -> Columns:
    number = func.coalesce(Placement.version, Alias.version)
    return _of_versions(base_id, AdapterVersion.number == number)


def _parts(base_id: str) -> Columns:
    """Versions of which `live` has a part, where another has more: a canary's should not wait for its load
    with each of its few requests."""
    ranges = cast("$.ranges[*][1] ? (@ == $number)", JSONPATH)  # [end, version]
    has_part = func.jsonb_path_exists(
        Alias.spread, ranges, func.jsonb_build_object("number", AdapterVersion.number)
    )
    return _of_versions(base_id, AdapterVersion.number != Alias.version).where(
        Placement.version.is_(None), Alias.spread.is_not(None), has_part
    )


def _of_versions(base_id: str, chosen: ColumnElement[bool]) -> Columns:
    return (
        select(
            Placement,
            Adapter.name,
            AdapterVersion.number,
            AdapterVersion.artefact,
            AdapterVersion.num_bytes,
        )
        .join(Adapter, Adapter.id == Placement.adapter_id)
        .outerjoin(Alias, (Alias.adapter_id == Adapter.id) & (Alias.name == LIVE))
        .join(AdapterVersion, (AdapterVersion.adapter_id == Adapter.id) & chosen)
        .where(Adapter.base_id == base_id, AdapterVersion.state == VersionState.READY)
        .order_by(Placement.created_at, Placement.adapter_id, AdapterVersion.number)
    )
