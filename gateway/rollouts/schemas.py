"""Wire types of rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.actions import TENANT, Call
from gateway.catalog.allowed import Viewer
from gateway.catalog.names import MAX_VERSION, NAME_PATTERN
from gateway.models import Rollout, RolloutEvent, RolloutState
from gateway.models.rollout import ACTIVE
from gateway.paging import Page
from gateway.proofs.acceptance import Acceptance
from gateway.rollouts.course import plan_of
from gateway.rollouts.figures import Figures, Pair
from gateway.rollouts.plan import DEFAULT_STEPS, MAX_STEPS, RollbackOn, Step

State = Literal["running", "paused", "promoted", "rolled_back", "superseded"]
Steps = Annotated[list[Step], Meta(min_length=1, max_length=MAX_STEPS)]


class RolloutIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Steps `alias` from the version that it points to, to the version `to`."""

    alias: Annotated[str, Meta(pattern=f"^{NAME_PATTERN}$")] = "live"
    to: Annotated[int, Meta(ge=1, le=MAX_VERSION)]
    steps: Steps = msgspec.field(default_factory=lambda: list(DEFAULT_STEPS))
    rollback_on: RollbackOn = RollbackOn()
    acceptance: Acceptance | None = None  # null: the prompts that came with the version's upload


class FiguresOut(msgspec.Struct, frozen=True, kw_only=True):
    """Of requests that ended, a second or two ago at the latest. Times are estimates, at most 9 % off."""

    version: int
    requests: int
    failed: int
    error_rate: float
    not_finite: int
    ttft_ms_p50: float | None
    ttft_ms_p95: float | None
    inter_token_ms_p50: float | None
    inter_token_ms_p95: float | None
    prompt_tokens: int
    completion_tokens: int

    @classmethod
    def of(cls, version: int, figures: Figures) -> FiguresOut:
        return cls(
            version=version,
            requests=figures.requests,
            failed=figures.failed,
            error_rate=round(figures.error_rate, 6),
            not_finite=figures.not_finite,
            ttft_ms_p50=figures.ttft_ms(0.5),
            ttft_ms_p95=figures.ttft_ms(0.95),
            inter_token_ms_p50=figures.inter_token_ms(0.5),
            inter_token_ms_p95=figures.inter_token_ms(0.95),
            prompt_tokens=figures.prompt_tokens,
            completion_tokens=figures.completion_tokens,
        )


class RolloutEventOut(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, by whom, and on which figures."""

    event: str
    actor: str
    details: dict[str, Any]
    at: datetime

    @classmethod
    def of(cls, event: RolloutEvent) -> RolloutEventOut:
        return cls(event=event.kind, actor=event.actor, details=event.details, at=event.created_at)


RolloutAction = Literal["pause", "resume", "promote", "roll_back"]
ROLLOUT: Final = f"{TENANT}/adapters/{{name}}/rollouts/{{rollout_id}}"
ACTIONS: Final[Mapping[RolloutAction, Call]] = {
    "pause": Call("POST", f"{ROLLOUT}/pause"),
    "resume": Call("POST", f"{ROLLOUT}/resume"),
    "promote": Call("POST", f"{ROLLOUT}/promote"),
    "roll_back": Call("POST", f"{ROLLOUT}/rollback"),
}


def can_with(adapter: str, rollout: Rollout, viewer: Viewer) -> list[RolloutAction]:
    """Nothing with one that has ended."""
    if rollout.state not in ACTIVE:
        return []
    without = {"resume" if rollout.state == RolloutState.RUNNING else "pause"}
    return viewer.can_of(ACTIONS, adapter, without)


class RolloutOut(msgspec.Struct, frozen=True, kw_only=True):
    """`old` since the rollout began to move its alias, `new` since its present step did. `can`: what whoever
    asks may do with it."""

    id: UUID
    object: Literal["adapter.rollout"] = "adapter.rollout"
    adapter: str
    alias: str
    from_version: int
    to_version: int
    state: State
    step: int  # from 1
    steps: list[Step]
    rollback_on: RollbackOn
    acceptance: Acceptance | None
    step_began_at: datetime | None  # null: its weight does not hold yet
    old: FiguresOut
    new: FiguresOut
    reason: dict[str, Any] | None  # why it ended otherwise than by its last step
    created_by: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    can: list[RolloutAction]
    events: list[RolloutEventOut] | None = None  # of one that was asked for alone; oldest first

    @classmethod
    def of(
        cls, adapter: str, rollout: Rollout, viewer: Viewer, events: Sequence[RolloutEvent] | None = None
    ) -> RolloutOut:
        plan, pair = plan_of(rollout), Pair.of_row(rollout.shown)
        return cls(
            id=rollout.id,
            adapter=adapter,
            alias=rollout.alias,
            from_version=rollout.from_version,
            to_version=rollout.to_version,
            state=msgspec.convert(rollout.state, State),
            step=rollout.step + 1,
            steps=plan.steps,
            rollback_on=plan.rollback_on,
            acceptance=plan.acceptance,
            step_began_at=rollout.step_began_at,
            old=FiguresOut.of(rollout.from_version, pair.old),
            new=FiguresOut.of(rollout.to_version, pair.new),
            reason=rollout.reason,
            created_by=rollout.created_by,
            created_at=rollout.created_at,
            updated_at=rollout.updated_at,
            ended_at=rollout.ended_at,
            can=can_with(adapter, rollout, viewer),
            events=None if events is None else [RolloutEventOut.of(event) for event in events],
        )


class RolloutList(Page[RolloutOut], frozen=True, kw_only=True):
    data: list[RolloutOut]
