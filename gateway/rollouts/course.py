"""What a rollout does to its alias, and how it tells of it: each in the caller's transaction, under the locks
of the adapter and of the rollout. Both people (`service.py`) and the leader (`stepping.py`) go by it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gateway.aliases.moves import move
from gateway.audit.service import Actor, Change, record
from gateway.db import TenantWrite
from gateway.ids import uuid7
from gateway.models import Adapter, Alias, Rollout, RolloutState
from gateway.principal import TenantId
from gateway.rollouts import repository
from gateway.rollouts.figures import Figures, Pair
from gateway.rollouts.judgement import Reason, Rule
from gateway.rollouts.plan import Plan
from gateway.webhooks.kinds import EventKind
from gateway.webhooks.outbox import publish


def plan_of(rollout: Rollout) -> Plan:
    return msgspec.convert(rollout.plan, Plan)


async def tell(
    session: TenantWrite, actor: Actor, adapter: Adapter, rollout: Rollout, kind: str, details: dict[str, Any]
) -> None:
    """The rollout's own event, the audit log and the webhook say the same."""
    repository.add_event(session, rollout, kind, actor.name, details)
    tenant = TenantId(rollout.tenant_id)
    about = {"alias": rollout.alias, "from": rollout.from_version, "to": rollout.to_version, **details}
    target = f"{adapter.name}@{rollout.alias}/{rollout.id}"
    record(session, actor, Change(f"rollout.{kind}", target, tenant, about))
    told = {
        "rollout": str(rollout.id),
        "adapter": adapter.name,
        "event": kind,
        "state": rollout.state,
        **about,
    }
    once = f"{EventKind.ROLLOUT_CHANGED}:{uuid7()}"
    await publish(session, tenant, EventKind.ROLLOUT_CHANGED, told, once=once)


async def begin_step(
    session: TenantWrite, actor: Actor, adapter: Adapter, rollout: Rollout, alias: Alias
) -> int:
    """The present step's weight holds from now on; gives the tenant's epoch."""
    plan = plan_of(rollout)
    weight = plan.steps[rollout.step].weight
    weights = {rollout.from_version: 100 - weight, rollout.to_version: weight}
    moved, epoch = await move(
        session, actor, adapter, alias, rollout.alias, {one: part for one, part in weights.items() if part}
    )
    rollout.alias_revision = moved.revision
    rollout.step_began_at = rollout.settled_until = datetime.now(UTC)
    kept = Pair.of_row(rollout.settled)
    rollout.settled = rollout.shown = Pair(old=kept.old, new=Figures()).row()
    await tell(session, actor, adapter, rollout, "step", {"step": rollout.step + 1, "weight": weight})
    return epoch


async def promote(
    session: TenantWrite,
    actor: Actor,
    adapter: Adapter,
    rollout: Rollout,
    alias: Alias,
    reason: Reason | None,
) -> int:
    """The alias is the new version's; gives the tenant's epoch."""
    moved, epoch = await move(session, actor, adapter, alias, rollout.alias, {rollout.to_version: 100})
    rollout.alias_revision = moved.revision
    await _end(session, actor, adapter, rollout, RolloutState.PROMOTED, "promote", reason)
    return epoch


async def roll_back(
    session: TenantWrite, actor: Actor, adapter: Adapter, rollout: Rollout, alias: Alias, reason: Reason
) -> int:
    """The alias is the old version's again; gives the tenant's epoch."""
    moved, epoch = await move(session, actor, adapter, alias, rollout.alias, {rollout.from_version: 100})
    rollout.alias_revision = moved.revision
    await _end(session, actor, adapter, rollout, RolloutState.ROLLED_BACK, "rollback", reason)
    return epoch


async def supersede(session: TenantWrite, actor: Actor, adapter: Adapter, rollout: Rollout) -> None:
    """Somebody else moved the alias, an upload for one: the rollout touches it no more."""
    reason = Reason(rule=Rule.MOVED, message="The alias was moved or deleted by somebody else.")
    await _end(session, actor, adapter, rollout, RolloutState.SUPERSEDED, "supersede", reason)


async def _end(
    session: TenantWrite,
    actor: Actor,
    adapter: Adapter,
    rollout: Rollout,
    state: RolloutState,
    kind: str,
    reason: Reason | None,
) -> None:
    rollout.state = state
    rollout.ended_at = datetime.now(UTC)
    rollout.reason = None if reason is None else reason.row()
    told: dict[str, Any] = {"step": rollout.step + 1}
    if reason is not None:
        told["reason"] = rollout.reason
    await tell(session, actor, adapter, rollout, kind, told)
