"""Percentiles off histograms: the error that is stated, and sums that stay exact."""

from __future__ import annotations

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from gateway.traffic.histograms import (
    ERROR,
    LEAST_MS,
    MOST_MS,
    NUM_BUCKETS,
    added,
    bucket_of,
    quantile,
    trimmed,
)

TIMES = st.lists(st.floats(LEAST_MS, MOST_MS), min_size=1, max_size=200)


def buckets_of(times: list[float]) -> list[int]:
    buckets = [0] * NUM_BUCKETS
    for ms in times:
        buckets[bucket_of(ms)] += 1
    return buckets


@given(times=TIMES, part=st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 1.0]))
def test_an_estimate_is_within_the_stated_factor(times: list[float], part: float) -> None:
    exact = sorted(times)[max(1, ceil(part * len(times))) - 1]
    estimate = quantile(trimmed(buckets_of(times)), part)
    assert estimate is not None
    assert max(estimate / exact, exact / estimate) <= ERROR * (1 + 1e-9)


@given(one=TIMES, other=TIMES)
def test_histograms_add_up(one: list[float], other: list[float]) -> None:
    both = added(trimmed(buckets_of(one)), trimmed(buckets_of(other)))
    assert both == trimmed(buckets_of(one + other))


def test_what_is_outside_counts_as_the_edge() -> None:
    assert quantile(buckets_of([0.0, 1e-9]), 0.5) == LEAST_MS
    assert quantile(buckets_of([1e9]), 0.5) == MOST_MS
    assert quantile([], 0.5) is None
