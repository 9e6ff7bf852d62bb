"""The catalog: which models a principal can see, and what a request's `model` stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from adapters.base import BaseSpec
from gateway.aliases import repository as aliases
from gateway.aliases.weighted import Sticky, Weighted
from gateway.catalog import repository
from gateway.catalog.cache import Owner, ResolveCache
from gateway.catalog.names import ModelName, parse_model
from gateway.catalog.policy import Action, may, require_scope
from gateway.catalog.repository import Line
from gateway.catalog.resolved import Resolved, ResolvedAdapter
from gateway.db import Database, TenantRead
from gateway.errors import AdapterLost, ModelNotFound
from gateway.limits.columns import limits_of
from gateway.principal import Principal
from gateway.sharing import repository as sharing

__all__ = ["Catalog", "Model", "Resolved", "ResolvedAdapter"]

CACHE_ENTRIES = 10_000
MODELS_LISTED = 1_000
"""In one answer; SDKs take it for all there are."""


@dataclass(frozen=True, slots=True)
class Model:
    """One entry of `/v1/models`."""

    id: str
    created: datetime
    owned_by: str  # tenant's name, or "motet" for a base
    parent: str | None  # base of an adapter


class Catalog:
    """Built once a worker (`services.catalog`); holds the only cache of resolved names (`resolved`)."""

    def __init__(self, database: Database, base: BaseSpec) -> None:
        self._database = database
        self.resolved: ResolveCache[Resolved | Weighted] = ResolveCache(CACHE_ENTRIES)
        self.base = base
        self.base_id = base.base_id

    async def resolve(self, principal: Principal, model: str, sticky: Sticky | None = None) -> Resolved:
        """What `model` stands for; raises `ModelNotFound` for unknown, foreign and not shared, retired, not
        allowed.

        Cached by (tenant, epoch, model): when the tenant's epoch moved, pass the principal re-read with it.
        Another tenant's adapter goes from the cache with that one's epoch too. `sticky`: which version of an
        alias that has several (`inference/sticky.py`).
        """
        require_scope(principal, Action.USE)
        if model == self.base.name:
            if not may(principal, Action.USE, model):
                raise ModelNotFound(model)
            return Resolved(model, self.base_id, adapter=None)
        name = self._allowed_name(principal, model)
        key = (principal.tenant, principal.epoch, model)
        resolved = self.resolved.get(key)
        if resolved is None:
            resolved, owner = await self._look_up(principal, model, name)
            self.resolved.put(key, resolved, owner)
        return resolved.choose(principal.tenant, sticky) if isinstance(resolved, Weighted) else resolved

    async def list_models(
        self,
        principal: Principal,
        after: str = "",
        limit: int = MODELS_LISTED,
        action: Action = Action.USE,
    ) -> list[Model]:
        """The base first, then the tenant's own adapters that a bare name reaches, by name, then those that
        `owner/name` does, as far as the key may use them (or do `action` with them); at most `limit`, those
        after the one named `after`."""
        require_scope(principal, action)
        line, start = Line(principal.tenant, self.base_id), "" if self.is_reserved(after) else after
        async with self._database.tenant_reader(principal.tenant) as session:
            created_at = await repository.base_created_at(session, self.base_id)
            rows = []
            if "/" not in after:
                rows = list(
                    await repository.list_served(
                        session, line, limit, after=start, allowed=principal.allowed_models
                    )
                )
            own = [self._model(principal.tenant_name, name, created) for name, _, created in rows]
            own = [model for model in own if may(principal, action, model.id)]
            theirs = await self._list_shared(session, principal, action, after, limit - len(own))
        first = [self._base_model(created_at)] if not after else []
        first = [model for model in first if may(principal, action, model.id)]
        return [*first, *own, *theirs][:limit]

    async def _list_shared(
        self, session: TenantRead, principal: Principal, action: Action, after: str, limit: int
    ) -> list[Model]:
        """Of other tenants, as `owner/name`, those after the one named `after`."""
        owner, _, name = after.partition("/") if "/" in after else ("", "", "")
        found: list[Model] = []
        while len(found) < limit:
            page = await sharing.list_shared(session, self.base_id, (owner, name), MODELS_LISTED)
            served = [self._model(each.owner, each.model, each.live_at) for each in page if each.live_at]
            found += [model for model in served if may(principal, action, model.id)]
            if len(page) < MODELS_LISTED:
                break
            owner, name = page[-1].owner, page[-1].name
        return found[:limit]

    async def get_model(self, principal: Principal, model: str) -> Model:
        """One of them, or a version by `name@3` or `owner/name@3`; raises `ModelNotFound`."""
        require_scope(principal, Action.USE)
        if model == self.base.name and may(principal, Action.USE, model):
            async with self._database.tenant_reader(principal.tenant) as session:
                return self._base_model(await repository.base_created_at(session, self.base_id))
        name = self._allowed_name(principal, model)
        async with self._database.tenant_reader(principal.tenant) as session:
            line, _ = await self._line(session, principal, model, name)
            row = await repository.find_served(session, line, name)
        if row is None:
            raise ModelNotFound(model)
        return self._model(name.owner or principal.tenant_name, model, row.created_at)

    def is_reserved(self, name: str) -> bool:
        """Whether `name` is a base's id, which no adapter may have."""
        return name == self.base.name

    def _allowed_name(self, principal: Principal, model: str) -> ModelName:
        """The parsed name when it can be an adapter that the key may use: one of the tenant's own (`owner` is
        None then, however it was written), or another's. Raises `ModelNotFound`."""
        name = parse_model(model)
        if name is not None and name.owner == principal.tenant_name:
            name = replace(name, owner=None)
        if name is None or self.is_reserved(name.name) or not may(principal, Action.USE, name.adapter):
            raise ModelNotFound(model)
        return name

    async def _look_up(
        self, principal: Principal, model: str, name: ModelName
    ) -> tuple[Resolved | Weighted, Owner | None]:
        async with self._database.tenant_reader(principal.tenant) as session:
            line, owner = await self._line(session, principal, model, name)
            row = await repository.find_served(session, line, name)
            if row is None:
                raise ModelNotFound(model)
            if row.lost_at is not None:
                raise AdapterLost(model)
            spread = await aliases.find_spread(session, row.Adapter.id, name.alias) if name.alias else None
            parts = [(row.number, row.artefact, row.digests)]
            if spread is not None:
                others = await aliases.ready_versions(session, row.Adapter.id, spread.weights)
                parts += [(each.number, each.artefact, each.digests) for each in others]
        limits = limits_of(row.Adapter)
        found: dict[int, Resolved] = {}
        for number, artefact, digests in parts:
            proved = None if digests is None else frozenset(digests)
            adapter = ResolvedAdapter(name.name, number, artefact, line.tenant, limits, name.owner, proved)
            found[number] = Resolved(model, self.base_id, adapter)
        first = found[row.number]
        return (first if spread is None else Weighted.of(spread, first, found)), owner

    async def _line(
        self, session: TenantRead, principal: Principal, model: str, name: ModelName
    ) -> tuple[Line, Owner | None]:
        """Whose adapters `name` is looked up among: the tenant's own, or those of an owner who shares it,
        whose rows the session sees from then on. Raises `ModelNotFound`."""
        if name.owner is None:
            return Line(principal.tenant, self.base_id), None
        owner = await sharing.enter(session, self.base_id, name)
        if owner is None:
            raise ModelNotFound(model)
        return Line(owner.tenant, self.base_id), owner

    def _base_model(self, created: datetime) -> Model:
        return Model(self.base.name, created, owned_by="motet", parent=None)

    def _model(self, owner: str, model: str, created: datetime) -> Model:
        return Model(model, created, owned_by=owner, parent=self.base.name)
