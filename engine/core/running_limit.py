"""How many sequences may run, where inter-token latency has a target.

The limit is the number of rows of the kind that run now whose step is estimated to take as long as the
target. It is followed with hysteresis: it moves only when it is off by more than a tenth, by a quarter of
itself at most, and not twice in a second. Nobody is preempted for it: a limit below the number that runs lets
them end.
"""

from __future__ import annotations

from typing import Final

from engine.core.step_cost import StepCost, StepLoad

DEAD_BAND: Final = 0.1
MOST_CHANGE: Final = 0.25
EVERY_S: Final = 1.0
TRUSTED_AFTER: Final = 32
"""Steps; before, the estimates may be far off."""


class RunningLimit:
    """`max_running`, or less."""

    def __init__(self, max_running: int, target_itl_ms: float | None) -> None:
        self._most = max_running
        self._target_ms = target_itl_ms
        self._moved_at = float("-inf")
        self.now = max_running

    def follow(self, cost: StepCost, decoding: StepLoad, now: float) -> None:
        """`decoding` is what a step would compute in which all that run decode."""
        is_trusted = decoding.rows > 0 and cost.num_observed >= TRUSTED_AFTER
        if self._target_ms is None or not is_trusted or now - self._moved_at < EVERY_S:
            return
        wanted = self._rows_for(self._target_ms, cost, decoding)
        if wanted < self._most and abs(wanted - self.now) <= DEAD_BAND * self.now:
            return
        change = max(1, int(MOST_CHANGE * self.now))
        self.now = max(self.now - change, min(self.now + change, wanted))
        self._moved_at = now

    def _rows_for(self, target_ms: float, cost: StepCost, decoding: StepLoad) -> int:
        base_ms = cost.estimate_ms(StepLoad())
        row_ms = (cost.estimate_ms(decoding) - base_ms) / decoding.rows
        return max(1, min(self._most, int((target_ms - base_ms) / row_ms)))
