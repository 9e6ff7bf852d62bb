"""Histograms of milliseconds with fixed edges, so that any number of them can be added and stays exact.

Bucket 0 is everything up to `LEAST_MS`; each further one is `RATIO` times as wide as the one before; the last
is open. An order statistic lies in the same bucket as its estimate, which is the geometric middle of that: so
an estimate is at most `ERROR` times too large or too small, between `LEAST_MS` and `MOST_MS`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import ceil
from typing import Final

LEAST_MS: Final = 0.25
PER_OCTAVE: Final = 4
OCTAVES: Final = 22
RATIO: Final = 2 ** (1 / PER_OCTAVE)
ERROR: Final = RATIO**0.5  # 1.0905
EDGES: Final = tuple(LEAST_MS * 2 ** (n / PER_OCTAVE) for n in range(OCTAVES * PER_OCTAVE + 1))
"""Upper edge of each bucket but the last, inclusive; up to 17.5 minutes."""
MOST_MS: Final = EDGES[-1]
NUM_BUCKETS: Final = len(EDGES) + 1


def bucket_of(ms: float) -> int:
    return bisect_left(EDGES, ms)


def quantile(buckets: Sequence[int], part: float) -> float | None:
    """The estimate of the value that `part` of all are not above (nearest rank); None of nothing. In the
    first and the last bucket, which have one edge only, it is that edge."""
    total = sum(buckets)
    if not total:
        return None
    rank, seen = max(1, ceil(part * total)), 0
    for number, count in enumerate(buckets):
        seen += count
        if seen >= rank:
            return _middle(number)
    raise AssertionError("unreachable: the counts sum to the total")


def added(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Of different lengths, where the last buckets are empty and left out."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    result = list(longer)
    for number, count in enumerate(shorter):
        result[number] += count
    return result


def trimmed(buckets: Sequence[int]) -> list[int]:
    """Without the empty ones at the end."""
    length = len(buckets)
    while length and not buckets[length - 1]:
        length -= 1
    return list(buckets[:length])


def _middle(number: int) -> float:
    if number == 0:
        return LEAST_MS
    if number >= len(EDGES):
        return MOST_MS
    return EDGES[number] / ERROR
