"""Whether a new version's figures send it back. Pure, so that a test can ask it anything.

One error of three is bad luck as often as not; five of five are not. So a share of errors counts once
chance explains it less than once in a thousand times, both against what is borne and, where the old version
has answered enough, against that. Figures are looked at each second: the bound is low for that reason.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from gateway.rollouts.figures import Figures, Pair
from gateway.rollouts.plan import RollbackOn
from gateway.rollouts.statistics import binomial_tail, fisher_tail
from gateway.traffic.histograms import EDGES, quantile

CHANCE: Final = 0.001
LEAST_FAILED: Final = 3
LEAST_OLD: Final = 20
"""Requests of the old version, from which on the new one is held against it."""
BEYOND_P95: Final = 0.05


class Rule(StrEnum):
    """What ended a rollout."""

    NOT_FINITE = "not_finite"
    ERROR_RATE = "error_rate"
    TTFT = "ttft_p95_ratio"
    ACCEPTANCE = "acceptance"
    EXPIRED = "expired"
    NOT_READY = "version_not_ready"
    HUMAN = "human"
    MOVED = "alias_moved"


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """For people and programs; what it was decided on is in `figures`."""

    rule: Rule
    message: str
    figures: dict[str, Any] = msgspec.field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


def why_back(on: RollbackOn, pair: Pair) -> Reason | None:
    """None: nothing speaks against it so far."""
    old, new = pair.old, pair.new
    if on.not_finite and new.not_finite:
        return Reason(
            rule=Rule.NOT_FINITE,
            message=f"{new.not_finite} of its {new.requests} requests computed to no number.",
            figures={"requests": new.requests, "not_finite": new.not_finite},
        )
    if on.error_rate is not None and (found := _errors(on.error_rate, on.max_requests_at_risk, old, new)):
        return found
    if on.ttft_p95_ratio is None:
        return None
    return _slow(on.ttft_p95_ratio, old.ttft, new.ttft) or _slow(
        on.ttft_p95_ratio, old.ttft_warm, new.ttft_warm
    )


def _errors(borne: float, at_risk: int, old: Figures, new: Figures) -> Reason | None:
    if new.error_rate <= borne or new.failed < LEAST_FAILED or borne >= 1.0:
        return None
    compared = old.requests >= LEAST_OLD
    if compared and new.error_rate <= old.error_rate:
        return None  # whatever is wrong is wrong with both
    chance = binomial_tail(new.failed, new.requests, borne)
    if compared:
        chance = max(chance, fisher_tail(new.failed, new.requests, old.failed, old.requests))
    if chance >= CHANCE and new.requests < at_risk:
        return None
    against = f"the old version's {old.error_rate:.1%} of {old.requests}" if compared else "no old version's"
    return Reason(
        rule=Rule.ERROR_RATE,
        message=f"{new.failed} of its {new.requests} requests failed ({new.error_rate:.1%}; borne are "
        f"{borne:.1%}), against {against}.",
        figures={
            "requests": new.requests,
            "failed": new.failed,
            "error_rate": new.error_rate,
            "borne": borne,
            "old_requests": old.requests,
            "old_failed": old.failed,
            "chance": chance,
        },
    )


def _slow(ratio: float, old: Sequence[int], new: Sequence[int]) -> Reason | None:
    """Were the new version's p95 within the bound, at most one in twenty would lie beyond it. Slow moments of
    a replica come in bursts and meet both: so the share beyond it is held against the old version's, too."""
    p95, num_old, num = quantile(old, 0.95), sum(old), sum(new)
    if p95 is None or num_old < LEAST_OLD:
        return None
    bound_ms = p95 * ratio
    place = bisect_left(EDGES, bound_ms) + 1
    beyond, old_beyond = sum(new[place:]), sum(old[place:])
    if beyond < LEAST_FAILED:
        return None
    chance = max(binomial_tail(beyond, num, BEYOND_P95), fisher_tail(beyond, num, old_beyond, num_old))
    if chance >= CHANCE:
        return None
    return Reason(
        rule=Rule.TTFT,
        message=f"{beyond} of its {num} first tokens came after more than {bound_ms:.0f} ms, which is "
        f"{ratio:g} times the old version's p95.",
        figures={
            "requests": num,
            "beyond": beyond,
            "bound_ms": round(bound_ms, 1),
            "ttft_ms_p95": quantile(new, 0.95),
            "old_ttft_ms_p95": p95,
            "ratio": ratio,
        },
    )
