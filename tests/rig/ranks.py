"""The Mann-Whitney rank test, to say whether two samples of times can be told apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranks:
    """`auc`: how often one of the first is less than one of the second (0.5: they can't be told apart).
    `p`: how often two samples of one distribution differ as much or more."""

    auc: float
    p: float


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> Ranks:
    """Two-sided, by the normal approximation with corrections for ties and continuity (Mann and Whitney,
    1947); for samples of eight and more."""
    n, m = len(first), len(second)
    ordered = sorted([*first, *second])
    ranks, start = dict[float, float](), 0
    for value, count in sorted(Counter(ordered).items()):
        ranks[value] = start + (count + 1) / 2
        start += count
    less = n * m + n * (n + 1) / 2 - sum(ranks[value] for value in first)  # pairs in which the first is less
    total = n + m
    ties = sum(count**3 - count for count in Counter(ordered).values()) / (total * (total - 1))
    spread = math.sqrt(n * m / 12 * (total + 1 - ties))
    if spread == 0:
        return Ranks(0.5, 1.0)
    distance = max(0.0, abs(less - n * m / 2) - 0.5) / spread
    return Ranks(less / (n * m), math.erfc(distance / math.sqrt(2)))
