"""The catalog: which models a principal can see, and what a request's `model` stands for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from adapters.base import BaseSpec
from gateway.catalog import repository
from gateway.catalog.cache import ResolveCache
from gateway.catalog.names import ModelName, parse_model
from gateway.catalog.policy import Action, may, require_scope
from gateway.catalog.repository import Line
from gateway.catalog.resolved import Resolved, ResolvedAdapter
from gateway.db import Database
from gateway.errors import ModelNotFound
from gateway.limits.columns import limits_of
from gateway.principal import Principal

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
    """Built once a worker (`services.catalog`); holds the only cache of resolved names."""

    def __init__(self, database: Database, base: BaseSpec) -> None:
        self._database = database
        self._cache: ResolveCache[Resolved] = ResolveCache(CACHE_ENTRIES)
        self.base = base
        self.base_id = base.base_id

    async def resolve(self, principal: Principal, model: str) -> Resolved:
        """What `model` stands for; raises `ModelNotFound` for unknown, foreign, retired, not allowed.

        Cached by (tenant, epoch, model): when the tenant's epoch moved, pass the principal re-read with it.
        """
        require_scope(principal, Action.USE)
        if model == self.base.name:
            if not may(principal, Action.USE, model):
                raise ModelNotFound(model)
            return Resolved(model, self.base_id, adapter=None)
        name = self._own_name(principal, model)
        if name is None or not may(principal, Action.USE, name.name):
            raise ModelNotFound(model)
        key = (principal.tenant, principal.epoch, model)
        resolved = self._cache.get(key)
        if resolved is None:
            resolved = await self._look_up(principal, model, name)
            self._cache.put(key, resolved)
        return resolved

    async def list_models(self, principal: Principal) -> list[Model]:
        """The base and the tenant's own adapters that a bare name reaches, as far as the key may use them."""
        require_scope(principal, Action.USE)
        line = Line(principal.tenant, self.base_id)
        async with self._database.tenant_reader(principal.tenant) as session:
            created_at = await repository.base_created_at(session, self.base_id)
            rows = await repository.list_served(session, line, MAX_MODELS_LISTED)
        own = [self._model(principal, name, created) for name, _, created in rows]
        return [m for m in [self._base_model(created_at), *own] if may(principal, Action.USE, m.id)]

    async def get_model(self, principal: Principal, model: str) -> Model:
        """One of them, or a version by `name@3`; raises `ModelNotFound`."""
        require_scope(principal, Action.USE)
        if model == self.base.name and may(principal, Action.USE, model):
            async with self._database.tenant_reader(principal.tenant) as session:
                return self._base_model(await repository.base_created_at(session, self.base_id))
        name = self._own_name(principal, model)
        if name is None or not may(principal, Action.USE, name.name):
            raise ModelNotFound(model)
        line = Line(principal.tenant, self.base_id)
        async with self._database.tenant_reader(principal.tenant) as session:
            row = await repository.find_served(session, line, name)
        if row is None:
            raise ModelNotFound(model)
        return self._model(principal, model, row.created_at)

    def is_reserved(self, name: str) -> bool:
        """Whether `name` is a base's id, which no adapter may have."""
        return name == self.base.name

    def _own_name(self, principal: Principal, model: str) -> ModelName | None:
        """The parsed name when it can be one of the tenant's own adapters."""
        name = parse_model(model)
        if name is None or name.owner not in (None, principal.tenant_name) or self.is_reserved(name.name):
            return None
        return name

    async def _look_up(self, principal: Principal, model: str, name: ModelName) -> Resolved:
        line = Line(principal.tenant, self.base_id)
        async with self._database.tenant_reader(principal.tenant) as session:
            row = await repository.find_served(session, line, name)
        if row is None:
            raise ModelNotFound(model)
        adapter = ResolvedAdapter(
            name.name,
            row.number,
            row.artefact,
            principal.tenant,
            limits_of(row.Adapter),
            frozenset(row.digests) if row.digests is not None else None,
        )
        return Resolved(model, self.base_id, adapter)

    def _base_model(self, created: datetime) -> Model:
        return Model(self.base.name, created, owned_by="motet", parent=None)

    def _model(self, principal: Principal, name: str, created: datetime) -> Model:
        return Model(name, created, owned_by=principal.tenant_name, parent=self.base.name)
