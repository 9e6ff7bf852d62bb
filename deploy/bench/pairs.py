"""Ratios of two measurements that alternate in one run: absolute times on a shared machine are noise."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Measure = Callable[[int], Awaitable[float]]
"""One measurement; the argument is the number of the pair, to vary prompts with."""


@dataclass(frozen=True)
class Ratio:
    """Of `ours` to `theirs`, by pair."""

    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def ratios(self) -> list[float]:
        return sorted(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def interval(self) -> tuple[float, float]:
        """Second lowest and second highest: of nine pairs, the median's 96 % interval (the binomial
        distribution of how many fall below it). With fewer than six pairs, the lowest and the highest."""
        ratios = self.ratios
        return (ratios[1], ratios[-2]) if len(ratios) >= 6 else (ratios[0], ratios[-1])


async def alternate(ours: Measure, theirs: Measure, count: int) -> Ratio:
    """Measures both `count` times, in turns; which of them goes first alternates too."""
    a: list[float] = []
    b: list[float] = []
    for pair in range(count):
        turns = [(ours, a), (theirs, b)]
        for measure, values in turns if pair % 2 == 0 else reversed(turns):
            values.append(await measure(pair))
    return Ratio(a, b)
