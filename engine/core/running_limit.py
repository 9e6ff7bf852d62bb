"""How many sequences may run, where inter-token latency has a target.

The limit is the number of rows of the kind that run now whose step is estimated to take as long as the
target. It is followed with hysteresis: it moves only when it is off by more than a tenth, down at once, up by
an eighth of itself in each second. Nobody is preempted for it: a limit below the number that runs lets them
end.
"""

from __future__ import annotations

from typing import Final

from engine.core.step_cost import StepCost, StepLoad

DEAD_BAND: Final = 0.1
GROWTH: Final = 0.125
GROW_EVERY_S: Final = 1.0


class RunningLimit:
    """`max_running`, or less."""

    def __init__(self, max_running: int, target_itl_ms: float | None) -> None:
        self._most = max_running
        self._target_ms = target_itl_ms
        self._grown_at = float("-inf")
        self.now = max_running

    def follow(self, cost: StepCost, decoding: StepLoad, now: float) -> None:
        """`decoding` is what a step would compute in which all that run decode."""
        if self._target_ms is None or decoding.rows == 0 or cost.num_observed == 0:
            return
        wanted = self._rows_for(self._target_ms, cost, decoding)
        if wanted < self.now * (1 - DEAD_BAND):
            self.now = wanted
            self._grown_at = now
        elif wanted > self.now * (1 + DEAD_BAND) and now - self._grown_at >= GROW_EVERY_S:
            self.now = min(wanted, self.now + max(1, int(self.now * GROWTH)))
            self._grown_at = now

    def _rows_for(self, target_ms: float, cost: StepCost, decoding: StepLoad) -> int:
        base_ms = cost.estimate_ms(StepLoad())
        row_ms = (cost.estimate_ms(decoding) - base_ms) / decoding.rows
        rows = int((target_ms - base_ms) / row_ms) if row_ms > 0 else self._most
        return max(1, min(self._most, rows))
