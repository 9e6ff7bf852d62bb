"""Aliases of a tenant's adapters: read, moved and deleted by people. Rollouts move them by `moves.py` too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.aliases import repository
from gateway.aliases.moves import drop, move, weights_of
from gateway.aliases.schemas import fields_of
from gateway.aliases.spread import MAX_VERSIONS, PERCENT
from gateway.audit.service import Actor
from gateway.catalog import repository as catalog
from gateway.catalog.lifecycle import Hints, adapter_not_found
from gateway.catalog.names import MAX_VERSION, is_name
from gateway.catalog.policy import Action, may
from gateway.catalog.repository import Line
from gateway.db import Database, TenantRead, TenantWrite
from gateway.edits import UNCONDITIONAL, Conditions, revision_tag
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.models import Adapter, Alias
from gateway.principal import Principal, TenantId
from gateway.tenants.epochs import Epochs

MAX_ALIASES: Final = 64
"""Of one adapter."""


@dataclass(frozen=True, slots=True)
class Pointing:
    """An alias, and the rollout that steps it."""

    alias: Alias
    rollout: UUID | None


class Aliases:
    """One a worker."""

    def __init__(self, database: Database, epochs: Epochs, hints: Hints, base_id: str) -> None:
        self._database = database
        self._epochs = epochs
        self._hints = hints
        self._base_id = base_id

    async def list_of(self, principal: Principal, name: str, after: str, limit: int) -> Sequence[Pointing]:
        """By name, after the name `after`; raises `NotFound` for the adapter."""
        async with seen_adapter(self._database, principal, self._base_id, name) as (session, adapter):
            found = await repository.list_aliases(session, adapter.id, after, limit)
            rollouts = await repository.active_rollouts(session, adapter.id)
        return [Pointing(alias, rollouts.get(alias.name)) for alias in found]

    async def get(self, principal: Principal, name: str, alias: str) -> Pointing:
        """Raises `NotFound`."""
        async with seen_adapter(self._database, principal, self._base_id, name) as (session, adapter):
            found = await repository.find(session, adapter.id, alias) if is_alias(alias) else None
            if found is None:
                raise alias_not_found(name, alias)
            return Pointing(found, await repository.active_rollout(session, adapter.id, alias))

    async def put(
        self,
        principal: Principal,
        actor: Actor,
        name: str,
        alias: str,
        weights: Mapping[int, int],
        conditions: Conditions = UNCONDITIONAL,
    ) -> tuple[Alias, bool]:
        """Points it to `weights`, and whether it is new. Requests that are in flight stay with their version;
        none that comes after this returned meets one that is not in `weights`.

        Raises `NotFound`, `BadRequest`, `PreconditionFailed`, and `Conflict` while a rollout has it, for
        a version that is not ready, and for too many aliases.
        """
        check_weights(weights)
        async with self._changed(principal, name) as (session, adapter):
            if not is_alias(alias):
                raise BadRequest("An alias is a name, and no number.", param="alias", code="invalid_alias")
            before = await repository.find(session, adapter.id, alias)
            _require(conditions, before)
            await require_no_rollout(session, adapter, alias)
            ready = await require_ready(session, adapter, weights)
            if before is not None and weights_of(before) == dict(weights):
                return before, False
            if before is None and await repository.num_aliases(session, adapter.id) >= MAX_ALIASES:
                message = f"An adapter has at most {MAX_ALIASES} aliases. Delete some first."
                raise Conflict(message, code="too_many_aliases")
            moved, epoch = await move(session, actor, adapter, before, alias, weights)
        await self._epochs.publish(principal.tenant, epoch)
        for artefact in ready.values():
            self._hints.prefetch(principal.tenant, artefact)
        return moved, before is None

    async def delete(
        self,
        principal: Principal,
        actor: Actor,
        name: str,
        alias: str,
        conditions: Conditions = UNCONDITIONAL,
    ) -> None:
        """Raises as `put` does."""
        async with self._changed(principal, name) as (session, adapter):
            found = await repository.find(session, adapter.id, alias) if is_alias(alias) else None
            if found is None:
                raise alias_not_found(name, alias)
            _require(conditions, found)
            await require_no_rollout(session, adapter, alias)
            epoch = await drop(session, actor, adapter, found)
        await self._epochs.publish(principal.tenant, epoch)

    @asynccontextmanager
    async def _changed(self, principal: Principal, name: str) -> AsyncIterator[tuple[TenantWrite, Adapter]]:
        async with locked_adapter(self._database, principal, self._base_id, name) as found:
            yield found


@asynccontextmanager
async def seen_adapter(
    database: Database, principal: Principal, base_id: str, name: str
) -> AsyncIterator[tuple[TenantRead, Adapter]]:
    """One that the caller may see, and that has a version left. Raises `NotFound`."""
    if not is_name(name) or not may(principal, Action.SEE, name):
        raise adapter_not_found(name)
    async with database.tenant_reader(principal.tenant) as session:
        row = await catalog.find_adapter(session, Line(principal.tenant, base_id), name)
        if row is None:
            raise adapter_not_found(name)
        yield session, row.adapter


@asynccontextmanager
async def locked_adapter(
    database: Database, principal: Principal, base_id: str, name: str
) -> AsyncIterator[tuple[TenantWrite, Adapter]]:
    """One that the caller may change, and that has a version left, locked until the block ends. Raises
    `NotFound`."""
    if not is_name(name) or not may(principal, Action.CHANGE, name):
        raise adapter_not_found(name)
    line = Line(TenantId(principal.tenant), base_id)
    async with database.tenant_session(principal.tenant) as session:
        adapter = await catalog.lock_adapter(session, line, name)
        if adapter is None or await catalog.find_adapter(session, line, name) is None:
            raise adapter_not_found(name)
        yield session, adapter


def _require(conditions: Conditions, alias: Alias | None) -> None:
    """Raises `PreconditionFailed`."""
    if alias is None:
        conditions.require(None)
    else:
        conditions.require(fields_of(alias), revision_tag(alias.revision))


def is_alias(text: str) -> bool:
    return is_name(text) and not text.isdigit()


def check_weights(weights: Mapping[int, int]) -> None:
    """Raises `BadRequest`."""
    if not 1 <= len(weights) <= MAX_VERSIONS:
        raise BadRequest(
            f"An alias has one to {MAX_VERSIONS} versions.", param="weights", code="invalid_value"
        )
    if any(version > MAX_VERSION for version in weights):
        raise BadRequest("There is no such version.", param="weights", code="invalid_value")
    if min(weights.values()) < 1 or sum(weights.values()) != PERCENT:
        message = f"Weights are whole percents of at least 1, {PERCENT} in all."
        raise BadRequest(message, param="weights", code="invalid_value")


async def require_ready(session: TenantRead, adapter: Adapter, numbers: Mapping[int, int]) -> dict[int, str]:
    """Number → artefact; raises `Conflict` when one of them can't serve."""
    found = await repository.ready_versions(session, adapter.id, numbers)
    ready = {row.number: row.artefact for row in found}
    missing = sorted(set(numbers) - set(ready))
    if missing:
        message = f"'{adapter.name}' has no version {missing[0]} that is ready."
        raise Conflict(message, param="weights", code="version_not_ready")
    return ready


async def require_no_rollout(session: TenantRead, adapter: Adapter, alias: str) -> None:
    """Two hands on one alias would undo each other: raises `Conflict`."""
    if (rollout := await repository.active_rollout(session, adapter.id, alias)) is not None:
        message = f"The rollout {rollout} steps this alias: promote it or roll it back first."
        raise Conflict(message, param="alias", code="rollout_active")


def alias_not_found(name: str, alias: str) -> NotFound:
    return NotFound(f"The alias '{name[:64]}@{alias[:64]}' does not exist.", code="alias_not_found")
