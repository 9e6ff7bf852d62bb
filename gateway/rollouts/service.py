"""Rollouts in people's hands: begun, looked at, paused, promoted, rolled back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgspec

from gateway.aliases import repository as aliases
from gateway.aliases.service import (
    alias_not_found,
    locked_adapter,
    require_no_rollout,
    require_ready,
    seen_adapter,
)
from gateway.audit.service import Actor
from gateway.db import Database, TenantWrite
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.ids import uuid7
from gateway.models import Adapter, Alias, Rollout, RolloutEvent, RolloutState
from gateway.models.rollout import ACTIVE
from gateway.principal import Principal
from gateway.proofs.acceptance import check_prompts
from gateway.rollouts import course, repository
from gateway.rollouts.judgement import Reason, Rule
from gateway.rollouts.plan import Plan, are_ascending
from gateway.rollouts.schemas import RolloutIn
from gateway.tenants.epochs import Epochs

MAX_ACTIVE: Final = 20
"""Of one tenant."""


@dataclass(frozen=True, slots=True)
class Seen:
    rollout: Rollout
    events: Sequence[RolloutEvent]


@dataclass(frozen=True, slots=True)
class _Held:
    """An active rollout with its locks."""

    session: TenantWrite
    adapter: Adapter
    rollout: Rollout


class Rollouts:
    """One a worker."""

    def __init__(self, database: Database, epochs: Epochs, base_id: str) -> None:
        self._database = database
        self._epochs = epochs
        self._base_id = base_id

    async def start(self, principal: Principal, actor: Actor, name: str, wanted: RolloutIn) -> Rollout:
        """Control's leader takes its first step within a few seconds. Raises `NotFound` for adapter and
        alias, `BadRequest` and `Unprocessable` for a plan that is none, `Conflict` for another rollout of the
        alias, an alias over several versions, a version that is not ready, and too many rollouts."""
        if not are_ascending(wanted.steps):
            message = "Each step must have a greater weight than the one before."
            raise BadRequest(message, param="steps", code="invalid_value")
        if wanted.acceptance is not None:
            await asyncio.to_thread(check_prompts, wanted.acceptance, "acceptance")
        async with locked_adapter(self._database, principal, self._base_id, name) as (session, adapter):
            alias = await aliases.find(session, adapter.id, wanted.alias)
            if alias is None:
                raise alias_not_found(name, wanted.alias)
            await require_no_rollout(session, adapter, wanted.alias)
            await require_ready(session, adapter, {wanted.to: 100})
            _check_alias(alias, wanted)
            if await repository.num_active(session, principal.tenant) >= MAX_ACTIVE:
                message = f"A tenant has at most {MAX_ACTIVE} rollouts at a time."
                raise Conflict(message, code="too_many_rollouts")
            await repository.forget_old(session, adapter)
            return await _begun(session, actor, adapter, alias, wanted)

    async def get(self, principal: Principal, name: str, rollout: UUID) -> Seen:
        """Raises `NotFound`."""
        async with seen_adapter(self._database, principal, self._base_id, name) as (session, adapter):
            found = await repository.find(session, adapter.id, rollout)
            if found is None:
                raise _not_found(rollout)
            return Seen(found, await repository.events_of(session, found))

    async def list_of(
        self, principal: Principal, name: str, before: UUID | None, limit: int
    ) -> Sequence[Rollout]:
        """Newest first, from below `before`; raises `NotFound` for the adapter."""
        async with seen_adapter(self._database, principal, self._base_id, name) as (session, adapter):
            return await repository.list_rollouts(session, adapter.id, before, limit)

    async def pause(self, principal: Principal, actor: Actor, name: str, rollout: UUID) -> Rollout:
        """It keeps its weight and goes no further; it still rolls back by itself. Raises `NotFound`, and
        `Conflict` for one that ended."""
        return await self._set(principal, actor, name, rollout, RolloutState.PAUSED, "pause")

    async def resume(self, principal: Principal, actor: Actor, name: str, rollout: UUID) -> Rollout:
        """Raises as `pause` does."""
        return await self._set(principal, actor, name, rollout, RolloutState.RUNNING, "resume")

    async def promote(self, principal: Principal, actor: Actor, name: str, rollout: UUID) -> Rollout:
        """The new version has the whole alias from here on. Raises as `pause` does."""
        async with self._held(principal, name, rollout) as held:
            alias = await _own_alias(held)
            session, adapter, found = held.session, held.adapter, held.rollout
            await require_ready(session, adapter, {found.to_version: 100})
            epoch = await course.promote(session, actor, adapter, found, alias, _by(actor))
            await _written(session, found)
        await self._epochs.publish(principal.tenant, epoch)
        return found

    async def roll_back(self, principal: Principal, actor: Actor, name: str, rollout: UUID) -> Rollout:
        """The old version has the whole alias from here on. Raises as `pause` does."""
        async with self._held(principal, name, rollout) as held:
            alias = await _own_alias(held)
            session, adapter, found = held.session, held.adapter, held.rollout
            epoch = await course.roll_back(session, actor, adapter, found, alias, _by(actor))
            await _written(session, found)
        await self._epochs.publish(principal.tenant, epoch)
        return found

    async def _set(
        self, principal: Principal, actor: Actor, name: str, rollout: UUID, state: RolloutState, kind: str
    ) -> Rollout:
        async with self._held(principal, name, rollout) as held:
            found = held.rollout
            if found.state != state:
                if await repository.num_events(held.session, found) >= repository.MAX_EVENTS:
                    raise Conflict("So much happened to it: end it.", code="too_many_events")
                found.state = state
                await course.tell(held.session, actor, held.adapter, found, kind, {"step": found.step + 1})
                await _written(held.session, found)
        return found

    @asynccontextmanager
    async def _held(self, principal: Principal, name: str, rollout: UUID) -> AsyncIterator[_Held]:
        async with locked_adapter(self._database, principal, self._base_id, name) as (session, adapter):
            found = await repository.lock(session, adapter.id, rollout)
            if found is None:
                raise _not_found(rollout)
            if found.state not in ACTIVE:
                raise Conflict(f"The rollout has ended: {found.state}.", code="rollout_ended")
            yield _Held(session, adapter, found)


def _check_alias(alias: Alias, wanted: RolloutIn) -> None:
    """Raises `Conflict`."""
    if alias.spread is not None:
        message = f"The alias '{alias.name}' is spread over several versions: point it to one first."
        raise Conflict(message, param="alias", code="alias_is_weighted")
    if alias.version == wanted.to:
        raise Conflict(f"'{alias.name}' is version {wanted.to} already.", param="to", code="alias_is_there")


async def _begun(
    session: TenantWrite, actor: Actor, adapter: Adapter, alias: Alias, wanted: RolloutIn
) -> Rollout:
    plan = Plan(steps=wanted.steps, rollback_on=wanted.rollback_on, acceptance=wanted.acceptance)
    rollout = Rollout(
        id=uuid7(),
        tenant_id=adapter.tenant_id,
        adapter_id=adapter.id,
        alias=alias.name,
        from_version=alias.version,
        to_version=wanted.to,
        plan=msgspec.to_builtins(plan),
        state=RolloutState.RUNNING,
        alias_revision=alias.revision,
        created_by=actor.name,
    )
    session.add(rollout)
    await session.flush()
    told: dict[str, Any] = {"steps": [step.weight for step in plan.steps]}
    await course.tell(session, actor, adapter, rollout, "start", told)
    await _written(session, rollout)
    return rollout


async def _own_alias(held: _Held) -> Alias:
    """Raises `Conflict` when somebody else moved it meanwhile."""
    alias = await aliases.find(held.session, held.adapter.id, held.rollout.alias)
    if alias is None or alias.revision != held.rollout.alias_revision:
        raise Conflict("The alias was moved or deleted by somebody else.", code="rollout_ended")
    return alias


async def _written(session: TenantWrite, rollout: Rollout) -> None:
    """With what the database itself sets."""
    await session.flush()
    await session.refresh(rollout)


def _by(actor: Actor) -> Reason:
    return Reason(rule=Rule.HUMAN, message=f"By {actor.name}.")


def _not_found(rollout: UUID) -> NotFound:
    return NotFound(f"The rollout '{rollout}' does not exist.", code="rollout_not_found")
