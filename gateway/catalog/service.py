"""The catalog: which models a principal can see, and what a request's `model` stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from adapters.base import BaseSpec
from gateway.catalog import repository
from gateway.catalog.cache import Owner, ResolveCache
from gateway.catalog.names import ModelName, parse_model
from gateway.catalog.policy import Action, may, require_scope
from gateway.catalog.repository import Line
from gateway.catalog.resolved import Resolved, ResolvedAdapter
from gateway.db import Database, TenantRead
from gateway.errors import ModelNotFound
from gateway.limits.columns import limits_of
from gateway.principal import Principal
from gateway.sharing import repository as sharing

__all__ = ["Catalog", "Model", "Resolved", "ResolvedAdapter"]

MAX_MODELS_LISTED = 10_000
CACHE_ENTRIES = 10_000


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
        self.resolved: ResolveCache[Resolved] = ResolveCache(CACHE_ENTRIES)
        self.base = base
        self.base_id = base.base_id

    async def resolve(self, principal: Principal, model: str) -> Resolved:
        """What `model` stands for; raises `ModelNotFound` for unknown, foreign and not shared, retired, not
        allowed.

        Cached by (tenant, epoch, model): when the tenant's epoch moved, pass the principal re-read with it.
        Another tenant's adapter goes from the cache with that one's epoch too.
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
        return resolved

    async def list_models(self, principal: Principal) -> list[Model]:
        """The base, the tenant's own adapters that a bare name reaches and those that `owner/name` does, as
        far as the key may use them."""
        require_scope(principal, Action.USE)
        line = Line(principal.tenant, self.base_id)
        async with self._database.tenant_reader(principal.tenant) as session:
            created_at = await repository.base_created_at(session, self.base_id)
            rows = await repository.list_served(session, line, MAX_MODELS_LISTED)
            theirs = await sharing.list_shared(session, self.base_id, None, MAX_MODELS_LISTED)
        own = [self._model(principal.tenant_name, name, created) for name, _, created in rows]
        shared = [self._model(each.owner, each.model, each.live_at) for each in theirs if each.live_at]
        models = [self._base_model(created_at), *own, *shared][:MAX_MODELS_LISTED]
        return [model for model in models if may(principal, Action.USE, model.id)]

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
    ) -> tuple[Resolved, Owner | None]:
        async with self._database.tenant_reader(principal.tenant) as session:
            line, owner = await self._line(session, principal, model, name)
            row = await repository.find_served(session, line, name)
        if row is None:
            raise ModelNotFound(model)
        adapter = ResolvedAdapter(
            name.name,
            row.number,
            row.artefact,
            line.tenant,
            limits_of(row.Adapter),
            owner_name=name.owner,
        )
        return Resolved(model, self.base_id, adapter), owner

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
