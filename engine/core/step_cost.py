"""How long a step takes, learnt from the steps that ran.

    ms = base + row * rows + adapter * bytes of distinct adapters + token * tokens beyond a row's first
       + position * positions of KV read + attended * (query, position) pairs beyond a row's first query

A row that decodes reads the KV of its context once; a prefill chunk reads it once too, and computes on it
once for each token, so that 64 tokens at position 4,096 may cost four times what they cost at position 0.

The six coefficients are a Kalman filter's state that drifts slowly (recursive least squares with a bounded
memory): each step moves them by what it shows, and those that a step says nothing about stay. A step that
took far longer than can be explained (a pause of the host) counts only for a part. One that took far less is
no accident, for none makes a step faster: what was believed is wrong, and is doubted as much as that says.
Deterministic in the durations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

Vector = list[float]

UNITS: Final = (1.0, 16.0, 64.0 * 2**20, 64.0, 16_384.0, 64.0 * 4_096.0)
"""What a coefficient is the cost of: the base, 16 rows, 64 MiB of adapters, 64 tokens, 16,384 positions read,
64 queries at 4,096 positions."""
PRIOR: Final = (1.0, 0.2, 0.1, 0.8, 0.4, 1.0)
"""In multiples of the base, between what a small model on a CPU and a large one on a GPU take."""
PRIOR_BASE_MS: Final = 10.0
DOUBT: Final = 3.0
"""Standard deviation of a coefficient of which nothing is known, in multiples of it."""
DRIFT: Final = 0.005
"""How far a coefficient may move from one step to the next, in multiples of it."""
NOISE: Final = 0.1
"""How far a step may lie from what is expected of it, in multiples of that."""
SURPRISE: Final = 3.0
"""Standard deviations beyond which a step is taken for an accident."""
ACCIDENTS: Final = 5
"""More of them in a row are no accident."""
LEAST: Final = 0.01
"""A coefficient falls to this share of its prior at most, on a machine as fast as the fastest step was, so
that no work is ever thought to be free."""


@dataclass(slots=True)
class StepLoad:
    """What a step computes, as far as its duration depends on it."""

    rows: int = 0
    adapter_bytes: int = 0
    extra_tokens: int = 0  # beyond the first of each row
    positions: int = 0  # of KV read, over all rows
    attended: float = 0.0  # (query, position) pairs beyond each row's first query

    def add(self, start: int, num_tokens: int, *, starts_row: bool = True) -> None:
        """Tokens at positions from `start` on; `starts_row` is False for more of a row that is in already."""
        extra = num_tokens - starts_row
        first = start + starts_row
        self.rows += starts_row
        self.extra_tokens += extra
        self.positions += (first if starts_row else 0) + extra
        self.attended += extra * (first + extra / 2)

    def features(self) -> Vector:
        amounts = (1, self.rows, self.adapter_bytes, self.extra_tokens, self.positions, self.attended)
        return [amount / unit for amount, unit in zip(amounts, UNITS, strict=True)]


class StepCost:
    """Estimates durations of steps in milliseconds, and learns from measured ones."""

    def __init__(self) -> None:
        self._coefficients: Vector = [share * PRIOR_BASE_MS for share in PRIOR]
        self._floor: Vector = [LEAST * each for each in self._coefficients]
        self._covariance = _diagonal([(DOUBT * each) ** 2 for each in self._coefficients])
        self._doubt: Vector = [row[i] for i, row in enumerate(self._covariance)]
        self._accidents = 0
        self._rates: Vector | None = None  # coefficients by single row, byte, token and so on; None = not yet
        self.num_observed = 0

    def estimate_ms(self, load: StepLoad) -> float:
        return _dot(self._coefficients, load.features())

    def adapter_ms(self, num_bytes: int) -> float:
        """What one more adapter adds to a step."""
        return self._coefficients[2] * num_bytes / UNITS[2]

    def fitting_tokens(self, budget_ms: float, start: int, most: int, *, starts_row: bool = True) -> int:
        """How many tokens (at most `most`) from position `start` on can join a step for `budget_ms`."""
        if self._rates is None:
            self._rates = [each / unit for each, unit in zip(self._coefficients, UNITS, strict=True)]
        _, row, _, token, position, attended = self._rates
        first = start + starts_row
        left = budget_ms - (row + position * first if starts_row else 0.0)
        if most <= 0 or left < 0:
            return 0
        # left >= (token + position + attended * first) * n + attended / 2 * n * n, for the largest n
        linear = token + position + attended * first
        root = math.sqrt(linear * linear + 2.0 * attended * left)
        return min(most, int(starts_row) + int(2.0 * left / (linear + root)))

    def observe(self, load: StepLoad, duration_ms: float) -> None:
        """One step ran. The first one tells the speed of the machine, of which the prior knows nothing."""
        if duration_ms <= 0.0:
            return
        x = load.features()
        self._rates = None
        if self.num_observed == 0:
            self._scale(duration_ms / self.estimate_ms(load))
        self.num_observed += 1
        self._lower_floor(x, duration_ms)
        self._drift()
        expected = _dot(self._coefficients, x)
        error = duration_ms - expected
        gain = [_dot(row, x) for row in self._covariance]
        variance = _dot(gain, x) + (NOISE * expected) ** 2
        if error < -SURPRISE * math.sqrt(variance):
            self._doubt_all()
            gain = [_dot(row, x) for row in self._covariance]
            variance = _dot(gain, x) + (NOISE * duration_ms) ** 2
        variance = self._credible(error, variance)
        self._coefficients = [
            each + g * error / variance for each, g in zip(self._coefficients, gain, strict=True)
        ]
        for i, row in enumerate(self._covariance):
            share = gain[i] / variance
            for j in range(len(row)):
                row[j] -= share * gain[j]
        self._raise_to_floor()

    def _lower_floor(self, x: Vector, duration_ms: float) -> None:
        """The first step may have been slow for once (its memory was cold, say): the fastest one says how low
        a coefficient may fall."""
        share = LEAST * duration_ms / _dot(self._floor, x)
        if share < 1.0:
            self._floor = [share * each for each in self._floor]

    def _credible(self, error: float, variance: float) -> float:
        """The variance with which a step counts: one that surprises tells less the more it does."""
        if error < 0.0 or error * error <= SURPRISE * SURPRISE * variance:
            self._accidents = 0
            return variance
        self._accidents += 1
        return variance if self._accidents > ACCIDENTS else (error / SURPRISE) ** 2

    def _raise_to_floor(self) -> None:
        """A coefficient below its floor is put on it, and the others where the steps so far would then have
        them; just raising it would leave its part of the error to them, step by step."""
        for _ in UNITS:
            below = [i for i, least in enumerate(self._floor) if self._coefficients[i] < 0.999 * least]
            if not below:
                break
            for i in below:
                missing = (self._floor[i] - self._coefficients[i]) / self._covariance[i][i]
                for j, covariance in enumerate(self._covariance[i]):
                    self._coefficients[j] += missing * covariance
        self._coefficients = list(map(max, self._coefficients, self._floor))

    def _drift(self) -> None:
        """Knowledge ages, up to the doubt of one who knows nothing."""
        for i, row in enumerate(self._covariance):
            row[i] += (DRIFT * self._coefficients[i]) ** 2
            if row[i] > self._doubt[i]:
                shrink = math.sqrt(self._doubt[i] / row[i])
                for j in range(len(row)):
                    row[j] *= shrink
                    self._covariance[j][i] *= shrink

    def _doubt_all(self) -> None:
        """Nothing is known but what the coefficients are now, as if they were a prior."""
        pairs = zip(self._coefficients, self._doubt, strict=True)
        self._covariance = _diagonal([min((DOUBT * each) ** 2, most) for each, most in pairs])

    def _scale(self, factor: float) -> None:
        self._coefficients = [each * factor for each in self._coefficients]
        self._floor = [each * factor for each in self._floor]
        self._doubt = [each * factor * factor for each in self._doubt]
        self._covariance = [[each * factor * factor for each in row] for row in self._covariance]


def _dot(a: Vector, b: Vector) -> float:
    return sum(map(float.__mul__, a, b))


def _diagonal(values: Vector) -> list[Vector]:
    return [[value if i == j else 0.0 for j in range(len(values))] for i, value in enumerate(values)]
