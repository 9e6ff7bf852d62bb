"""What sends a new version back, and what doesn't."""

from __future__ import annotations

from itertools import pairwise
from math import comb

import pytest

from gateway.rollouts.figures import Figures, Pair
from gateway.rollouts.judgement import Rule, why_back
from gateway.rollouts.plan import RollbackOn
from gateway.rollouts.statistics import binomial_tail, fisher_tail
from gateway.traffic.histograms import NUM_BUCKETS, bucket_of, trimmed

ON = RollbackOn()


def figures(requests: int, failed: int = 0, not_finite: int = 0) -> Figures:
    return Figures(requests=requests, failed=failed, not_finite=not_finite)


def times(*ms: float) -> list[int]:
    buckets = [0] * NUM_BUCKETS
    for one in ms:
        buckets[bucket_of(one)] += 1
    return trimmed(buckets)


@pytest.mark.parametrize(("hits", "num", "share"), [(3, 3, 0.05), (5, 20, 0.1), (40, 300, 0.05), (7, 7, 0.9)])
def test_the_binomial_tail_is_exact(hits: int, num: int, share: float) -> None:
    exact = sum(comb(num, k) * share**k * (1 - share) ** (num - k) for k in range(hits, num + 1))
    assert binomial_tail(hits, num, share) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(("hits", "num", "other", "others"), [(5, 5, 0, 5), (6, 20, 2, 100), (3, 9, 1, 4)])
def test_fishers_tail_is_exact(hits: int, num: int, other: int, others: int) -> None:
    total, marked = num + others, hits + other
    exact = sum(
        comb(num, k) * comb(others, marked - k)
        for k in range(hits, min(num, marked) + 1)
        if 0 <= marked - k <= others
    ) / comb(total, marked)
    assert fisher_tail(hits, num, other, others) == pytest.approx(exact, rel=1e-9)


def test_tails_hold_for_a_month_of_requests() -> None:
    assert binomial_tail(51_000, 1_000_000, 0.05) < 1e-5
    assert binomial_tail(50_000, 1_000_000, 0.05) == 1.0
    assert fisher_tail(700, 10_000, 50_000, 1_000_000) < 1e-10
    assert fisher_tail(0, 5, 0, 5) == 1.0


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (figures(0), figures(0)),
        (figures(3, 1), figures(60)),  # bad luck
        (figures(2, 2), figures(38)),  # two say nothing yet
        (figures(100, 5), figures(1900, 20)),  # what is borne is borne
        (figures(50, 25), figures(950, 500)),  # whatever it is, the old one has it too
    ],
)
def test_what_chance_or_the_platform_explains_is_borne(new: Figures, old: Figures) -> None:
    assert why_back(ON, Pair(old=old, new=new)) is None


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (figures(3, 3), figures(57)),
        (figures(3, 3), figures(0)),  # all of the alias is its own: held against the bound alone
        (figures(8, 4), figures(160, 1)),
        (figures(100, 8), figures(1900, 30)),  # its budget is used up, and its share is above
    ],
)
def test_a_worse_version_goes_back_with_its_figures(new: Figures, old: Figures) -> None:
    reason = why_back(ON, Pair(old=old, new=new))
    assert reason is not None
    assert reason.rule is Rule.ERROR_RATE
    assert (reason.figures["requests"], reason.figures["failed"]) == (new.requests, new.failed)
    assert f"{new.failed} of its {new.requests} requests" in reason.message


def test_a_broken_version_goes_back_within_its_budget() -> None:
    """Whatever share of requests it breaks, above what is borne: at most `max_requests_at_risk` see it."""
    seen = []
    for percent in (6, 10, 20, 50, 100):
        for num in range(1, ON.max_requests_at_risk + 1):
            pair = Pair(old=figures(2000), new=figures(num, num * percent // 100))
            if why_back(ON, pair) is not None:
                seen.append(num)
                break
    assert len(seen) == 5
    assert all(one >= other for one, other in pairwise(seen))
    assert (seen[0], seen[-1]) == (100, 3)


def test_one_number_that_is_none_is_enough() -> None:
    pair = Pair(old=figures(100), new=figures(40, 1, not_finite=1))
    reason = why_back(ON, pair)
    assert reason is not None
    assert reason.rule is Rule.NOT_FINITE
    assert why_back(RollbackOn(not_finite=False), pair) is None


def test_slow_first_tokens_send_it_back_and_one_does_not() -> None:
    old = Figures(requests=100, ttft=times(*[50.0] * 95, *[100.0] * 5))
    fine = Figures(requests=21, ttft=times(*[55.0] * 20, 900.0))
    assert why_back(ON, Pair(old=old, new=fine)) is None
    slow = Figures(requests=20, ttft=times(*[55.0] * 12, *[900.0] * 8))
    reason = why_back(ON, Pair(old=old, new=slow))
    assert reason is not None
    assert reason.rule is Rule.TTFT
    assert reason.figures["beyond"] == 8
    assert why_back(RollbackOn(ttft_p95_ratio=None), Pair(old=old, new=slow)) is None


def test_an_empty_prefix_cache_is_not_held_against_a_new_version() -> None:
    old = Figures(requests=100, ttft=times(*[400.0] * 4), ttft_warm=times(*[30.0] * 96))
    cold = Figures(requests=12, ttft=times(*[400.0] * 8), ttft_warm=times(*[30.0] * 4))
    assert why_back(ON, Pair(old=old, new=cold)) is None
    slow = Figures(requests=12, ttft=times(*[400.0] * 4), ttft_warm=times(*[200.0] * 8))
    assert why_back(ON, Pair(old=old, new=slow)) is not None
