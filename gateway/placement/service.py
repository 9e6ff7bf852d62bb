"""The rules of placements: who may have which adapter lie where, and what a worker knows of where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from gateway.actions import allowed
from gateway.audit.service import Actor, Change, record
from gateway.catalog import repository as catalog
from gateway.catalog.lifecycle import adapter_not_found
from gateway.catalog.names import is_name
from gateway.catalog.policy import Action, may
from gateway.catalog.repository import Line
from gateway.db import Database, TenantRead
from gateway.edits import require_match
from gateway.errors import Conflict, NotFound
from gateway.models import Adapter, Placement, PlacementTier
from gateway.placement import repository
from gateway.placement.moves import Moves, holders, lies
from gateway.placement.planning import homes
from gateway.placement.quota import Quota, quota_of, sums
from gateway.placement.reconciler import members_for
from gateway.placement.repository import Named, Placed, PlacedFilters
from gateway.placement.schemas import (
    ACTIONS,
    Held,
    Holder,
    MoveOut,
    PlacedAdapter,
    PlacementAction,
    PlacementBody,
    PlacementOut,
    QuotaBody,
    QuotaOut,
    State,
    Wish,
)
from gateway.principal import Principal, Role, Scope, TenantId
from gateway.replicas.registry import Registry
from gateway.tenants import repository as tenants
from gateway.tenants.service import no_such_tenant


class Placements:
    """One a worker; `registry` is that worker's."""

    def __init__(self, db: Database, registry: Registry, base_id: str, default: Quota) -> None:
        self._db = db
        self._registry = registry
        self._base_id = base_id
        self._default = default
        self.moved = Moves(registry)

    async def get(self, principal: Principal, name: str, role: Role | None = None) -> PlacementOut:
        """`role`: as what an account asks; None = a key does. Raises `NotFound`."""
        line = self._allowed(principal, Action.SEE, name)
        async with self._db.tenant_reader(principal.tenant) as session:
            if await catalog.find_adapter(session, line, name) is None:
                raise adapter_not_found(name)
            return await self._shown(session, line, name, _can(principal, role))

    async def put(
        self,
        principal: Principal,
        actor: Actor,
        name: str,
        wanted: PlacementBody,
        *,
        role: Role | None = None,
        if_match: str | None = None,
    ) -> PlacementOut:
        """Control applies it within seconds. Raises `NotFound` for the adapter or its version, `Conflict`
        beyond the tenant's quota, `PreconditionFailed` for one that is not what `if_match` says."""
        can, line = _can(principal, role), self._allowed(principal, Action.CHANGE, name)
        tenant = principal.tenant
        async with self._db.tenant_session(tenant) as session:
            await repository.lock_tenant(session, tenant)
            adapter = await _existing(session, line, name)
            require_match(if_match, (await self._shown(session, line, name, can)).fields)
            if wanted.version is not None:
                version = await catalog.find_version(session, adapter, wanted.version)
                if version is None:
                    raise adapter_not_found(name, wanted.version)
            await repository.put(session, adapter, wanted.values())
            placed = await repository.placed_by(session, line)
            own = await repository.quota(session, tenant)
            _require_room(placed, adapter, quota_of(own, self._default))
            record(session, actor, Change("placement.update", name, tenant, details=wanted.values()))
            return await self._shown(session, line, name, can)

    async def delete(
        self, principal: Principal, actor: Actor, name: str, if_match: str | None = None
    ) -> None:
        """What replicas were asked to keep lapses within a minute; it may stay where it is of use. Raises
        `NotFound`, and `PreconditionFailed`."""
        line = self._allowed(principal, Action.CHANGE, name)
        async with self._db.tenant_session(principal.tenant) as session:
            await repository.lock_tenant(session, principal.tenant)
            adapter = await _existing(session, line, name)
            require_match(if_match, (await self._shown(session, line, name, [])).fields)
            if not await repository.remove(session, adapter):
                raise _placed_nowhere(name)
            record(session, actor, Change("placement.delete", name, principal.tenant))

    async def quota(self, tenant: TenantId) -> QuotaOut:
        async with self._db.tenant_reader(tenant) as session:
            own = await repository.quota(session, tenant)
            placed = await repository.placed_by(session, Line(tenant, self._base_id))
        slots, num_bytes = sums(placed)
        quota = quota_of(own, self._default)
        return QuotaOut(
            slots=quota.slots,
            bytes=quota.bytes,
            is_default=own is None,
            wanted_slots=slots,
            wanted_bytes=num_bytes,
        )

    async def set_quota(self, actor: Actor, tenant: TenantId, wanted: QuotaBody) -> QuotaOut:
        """What is beyond it is not applied any more, youngest first. Raises `NotFound`."""
        details = {"slots": wanted.slots, "bytes": wanted.bytes}
        async with self._db.system_session() as session:
            row = await tenants.find(session, tenant)
            if row is None:
                raise no_such_tenant()
            await repository.set_quota(session, tenant, wanted.slots, wanted.bytes)
            record(session, actor, Change("placement_quota.update", row.name, tenant, details=details))
        return await self.quota(tenant)

    async def page(
        self, wanted: PlacedFilters, after: tuple[str, str], limit: int
    ) -> list[tuple[tuple[str, str], PlacedAdapter]]:
        """Of all tenants, by adapter: what is wanted, and what is; each with its place in the list."""
        async with self._db.system_reader() as session:
            placed = {each.artefact: each for each in await repository.placed(session, self._base_id)}
            shown = self._candidates(wanted, placed)
            rows = await repository.page_of(session, self._base_id, shown, wanted, after, limit)
            own = await repository.quotas(session, {p.placement.tenant_id for p in placed.values()})
        quotas = {tenant: quota_of(row, self._default) for tenant, row in own.items()}
        applied = self._applied(list(placed.values()), quotas)
        return [
            (("" if named is None else named.adapter, artefact), self._row(artefact, named, placed, applied))
            for artefact, named in rows
        ]

    def best_tier(self, artefact: str) -> Literal["device", "host", "disk", "store"]:
        """Where it lies nearest to an answer, over all replicas that are well; as this worker knows it."""
        found = {lies(replica, artefact) for replica in self._registry.all if replica.healthy}
        nearest: tuple[Literal["device", "host", "disk"], ...] = ("device", "host", "disk")
        for tier in nearest:
            if tier in found:
                return tier
        return "store"

    async def moves(self, limit: int, since: datetime | None) -> list[MoveOut]:
        """Loads and evictions, newest first."""
        found = self.moved.latest(limit, since)
        async with self._db.system_reader() as session:
            names = await repository.named(session, self._base_id, {move.artefact for move in found})
        return [MoveOut.of(move, names.get(move.artefact)) for move in found]

    def _candidates(self, wanted: PlacedFilters, placed: Mapping[str, Placed]) -> set[str]:
        """What is wanted somewhere, or lies somewhere, as far as replicas and wishes tell."""
        views = [r.view for r in self._registry.all if r.healthy and wanted.replica in (None, r.url)]
        held: set[str] = set()
        for view in views:
            held |= view.device if wanted.tier != "host" else frozenset()
            held |= view.host - view.device if wanted.tier != "device" else frozenset()
        if wanted.replica is None and wanted.tier is None:
            held |= set(placed)
        if wanted.wanted is None:
            return held
        return held & set(placed) if wanted.wanted else held - set(placed)

    def _allowed(self, principal: Principal, action: Action, name: str) -> Line:
        if not is_name(name) or not may(principal, action, name):
            raise adapter_not_found(name)
        return Line(principal.tenant, self._base_id)

    async def _shown(
        self, session: TenantRead, line: Line, name: str, can: list[PlacementAction]
    ) -> PlacementOut:
        placement = await repository.find(session, line, name)
        standing = await repository.standing(session, line, name)
        found = [] if standing is None else holders(self._registry.all, standing[1])
        held = Held(sum(tier == "device" for _, tier in found), sum(tier == "host" for _, tier in found))
        state: State = "unplaced"
        if placement is not None:
            placed = await repository.placed_by(session, line)
            quota = quota_of(await repository.quota(session, line.tenant), self._default)
            state = _state(placement, quota.within(placed), held, standing)
        return PlacementOut(
            adapter=name,
            replicas=0 if placement is None else placement.replicas,
            pinned=placement is not None and placement.pinned,
            tier=PlacementTier.HOST if placement is None else PlacementTier(placement.tier),
            version=None if placement is None else placement.version,
            serves=None if standing is None else standing[0],
            held=held,
            state=state,
            created_at=None if placement is None else placement.created_at,
            updated_at=None if placement is None else placement.updated_at,
            can=[action for action in can if placement is not None or action != "unplace"],
        )

    def _applied(self, placed: Sequence[Placed], quotas: Mapping[UUID, Quota]) -> set[tuple[UUID, str]]:
        """(adapter, artefact) of what is within its tenant's quota."""
        by_tenant: dict[UUID, list[Placed]] = {}
        for each in placed:
            by_tenant.setdefault(each.placement.tenant_id, []).append(each)
        return {
            (each.placement.adapter_id, each.artefact)
            for tenant, theirs in by_tenant.items()
            for each in quotas.get(tenant, self._default).within(theirs)
        }

    def _row(
        self, artefact: str, named: Named | None, placed: Mapping[str, Placed], applied: set[tuple[UUID, str]]
    ) -> PlacedAdapter:
        wish = None
        if artefact in placed:
            row = placed[artefact].placement
            wish = Wish(
                row.replicas,
                row.pinned,
                PlacementTier(row.tier),
                (row.adapter_id, artefact) in applied,
            )
        ranked: tuple[str, ...] = ()
        if named is not None:
            members = members_for(self._registry, TenantId(named.tenant), named.adapter)
            number = 1 if wish is None else wish.replicas
            ranked = tuple(replica.url for replica in homes(artefact, members, number))
        without = {"unplace"} if wish is None else ()
        return PlacedAdapter(
            artefact=artefact,
            tenant=None if named is None else named.tenant,
            adapter=None if named is None else named.adapter,
            version=None if named is None else named.version,
            wanted=wish,
            homes=list(ranked),
            held=[
                Holder(replica.url, tier)
                for replica in self._registry.all
                if replica.healthy and (tier := lies(replica, artefact)) != "none"
            ],
            can=[] if named is None else allowed(ACTIONS, Role.OPERATOR, without=without),
        )


def _can(principal: Principal, role: Role | None) -> list[PlacementAction]:
    """Of a key: what its scopes reach."""
    if role is None and not principal.may(Scope.ADAPTERS_WRITE):
        return []
    return allowed(ACTIONS, role)


async def _existing(session: TenantRead, line: Line, name: str) -> Adapter:
    """An adapter with a version; raises `NotFound`."""
    found = await catalog.find_adapter(session, line, name)
    if found is None:
        raise adapter_not_found(name)
    return found.adapter


def _require_room(placed: Sequence[Placed], adapter: Adapter, quota: Quota) -> None:
    """Raises `Conflict`. Placements of before that are beyond a quota that was lowered since are no reason
    to refuse one that takes no more than its own room; nor are parts of `live`, which have what is left."""
    whole = [each for each in placed if not each.is_part]
    mine = [each for each in whole if each.placement.adapter_id == adapter.id]
    others = quota.within(each for each in whole if each.placement.adapter_id != adapter.id)
    if not quota.allows([*others, *mine]):
        slots, num_bytes = sums([*others, *mine])
        raise Conflict(
            f"Placements of a tenant take at most {quota.slots} slots and {quota.bytes / 2**20:g} MiB over "
            f"all replicas; with this one it would be {slots} and {num_bytes / 2**20:.1f}.",
            code="placement_quota_exceeded",
        )


def _state(
    placement: Placement, applied: Sequence[Placed], held: Held, standing: tuple[int, str] | None
) -> State:
    if standing is None:
        return "no_version"
    mine = (each for each in applied if each.placement.adapter_id == placement.adapter_id)
    if all(each.is_part for each in mine):
        return "over_quota"
    there = held.device + (0 if placement.tier == PlacementTier.DEVICE else held.host)
    return "met" if there >= placement.replicas else "waiting"


def _placed_nowhere(name: str) -> NotFound:
    return NotFound(f"The adapter '{name[:64]}' is placed nowhere.", param="name", code="placement_not_found")
