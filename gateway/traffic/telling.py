"""From rows of sums to series of figures, with the one that stands for all others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from gateway.traffic.histograms import added
from gateway.traffic.minute import ALL, COUNTS, HISTOGRAMS, OTHER, TOKENS
from gateway.traffic.repository import Look
from gateway.traffic.schemas import Figures, Percentiles, Point, Series

_SUMS = (*COUNTS, *TOKENS)


@dataclass(slots=True)
class Part:
    """What a step, or several together, come to: a number for each of `COUNTS` and `TOKENS`, and buckets for
    each of `HISTOGRAMS`."""

    sums: list[int]
    histograms: list[list[int]]

    @classmethod
    def nothing(cls) -> Part:
        return cls([0] * len(_SUMS), [[] for _ in HISTOGRAMS])

    @classmethod
    def of(cls, row: Any) -> Part:
        return cls(
            [getattr(row, name) for name in _SUMS],
            [_dense(row.numbers, getattr(row, name)) for name in HISTOGRAMS],
        )

    def __add__(self, other: Part) -> Part:
        return Part(
            [one + two for one, two in zip(self.sums, other.sums, strict=True)],
            [added(one, two) for one, two in zip(self.histograms, other.histograms, strict=True)],
        )

    def __sub__(self, other: Part) -> Part:
        """Never below nothing: of a minute that is being written, a part may be there before the whole."""
        rest = self + Part([-n for n in other.sums], [[-n for n in each] for each in other.histograms])
        return Part([max(0, n) for n in rest.sums], [[max(0, n) for n in each] for each in rest.histograms])

    @property
    def is_empty(self) -> bool:
        return not any(self.sums)

    @property
    def figures(self) -> Figures:
        found: dict[str, Any] = dict(zip(_SUMS, self.sums, strict=True))
        found |= {
            f"{name}_ms": Percentiles.of(buckets)
            for name, buckets in zip(HISTOGRAMS, self.histograms, strict=True)
        }
        return Figures(requests=sum(self.sums[: len(COUNTS)]), **found)


Steps = dict[datetime, Part]


def told(look: Look, rows: Sequence[Any], names: Mapping[UUID, str]) -> list[Series]:
    """The largest first. `(other)` is what is left of all without those that are told, so that it costs the
    database no look at its own rows."""
    whole: Steps = {}
    found: dict[tuple[str, UUID | None], Steps] = defaultdict(dict)
    for row in rows:
        if row.key == ALL:
            whole[row.step] = Part.of(row)
        else:
            key = str(row.tenant) if look.by == "tenant" else row.key
            found[key, row.tenant][row.step] = Part.of(row)
    if look.by == "all":
        return [_series(look, "all", None, whole, names)] if whole else []
    several = look.tenant is None
    series = [
        _series(look, key, tenant if several else None, steps, names)
        for (key, tenant), steps in found.items()
    ]
    rest = _rest(whole, found.values())
    if rest:
        series.append(_series(look, OTHER, None, rest, names))
    return sorted(series, key=lambda one: (-one.total.requests, one.key))


def _rest(whole: Steps, largest: Collection[Steps]) -> Steps:
    left: Steps = {}
    for step, part in whole.items():
        rest = part
        for steps in largest:
            if step in steps:
                rest = rest - steps[step]
        if not rest.is_empty:
            left[step] = rest
    return left


def _series(look: Look, key: str, tenant: UUID | None, steps: Steps, names: Mapping[UUID, str]) -> Series:
    told_steps = sorted(steps.items()) if look.points else []
    points = [Point(step, part.figures) for step, part in told_steps]
    total = sum(steps.values(), Part.nothing())
    name = None if tenant is None else names.get(tenant)
    return Series(key, tenant, name, total.figures, points)


def _dense(numbers: Sequence[int], counts: Sequence[int]) -> list[int]:
    """`numbers` ascend, and begin with 1."""
    found = [0] * (numbers[-1] if numbers else 0)
    for number, count in zip(numbers, counts, strict=True):
        found[number - 1] = count
    return found
