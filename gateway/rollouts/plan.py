"""What a rollout is to do: its steps, what sends it back, and the prompts that it has to pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from gateway.proofs.acceptance import Acceptance

MAX_STEPS: Final = 20
MAX_HOLD_S: Final = 7 * 86_400
MOST_DAYS: Final = 30
"""A rollout that has not come to its end by then, for want of requests say, is rolled back."""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For at least `hold_s` seconds, and until `min_requests` of the new version ended, `weight` percent of
    the alias is the new version's."""

    weight: Annotated[int, Meta(ge=1, le=100)]
    hold_s: Annotated[int, Meta(ge=0, le=MAX_HOLD_S)] = 300
    min_requests: Annotated[int, Meta(ge=0, le=1_000_000)] = 20


class RollbackOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What sends the alias back to the old version, by itself; null or false: not that."""

    error_rate: Annotated[
        Annotated[float, Meta(gt=0.0, le=1.0)] | None,
        Meta(description="Share of failed requests that is still borne, if the old version's is no better."),
    ] = 0.05
    ttft_p95_ratio: Annotated[
        Annotated[float, Meta(ge=1.0, le=100.0)] | None,
        Meta(description="How many times the old version's p95 of the time to the first token is borne."),
    ] = 2.0
    not_finite: Annotated[bool, Meta(description="The first answer that computes to no number.")] = True
    acceptance: Annotated[bool, Meta(description="Acceptance prompts that are not passed.")] = True
    max_requests_at_risk: Annotated[
        int,
        Meta(
            ge=3,
            le=100_000,
            description="Once so many of the new version's requests of a step ended, its bare share of errors"
            " decides; before, only a share that chance explains once in a thousand times.",
        ),
    ] = 100


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """As `rollouts.plan` holds it. `acceptance` None: the prompts that came with the version's upload."""

    steps: list[Step]
    rollback_on: RollbackOn
    acceptance: Acceptance | None = None


DEFAULT_STEPS: Final = (Step(weight=5), Step(weight=25), Step(weight=50), Step(weight=100))


def are_ascending(steps: Sequence[Step]) -> bool:
    """Each step gives the new version more than the one before."""
    return all(one.weight < next_one.weight for one, next_one in pairwise(steps))
