"""How long steps take, on the device and in the core itself, and how full they are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepState:
    """Of the steps since the report before. Means are per step, and 0 where there was none."""

    steps: int = 0
    rows: float = 0.0
    tokens: float = 0.0
    adapters: float = 0.0  # distinct ones
    run_ms: float = 0.0  # on the runner, without waiting for the step before it
    run_ms_most: float = 0.0
    host_ms: float = 0.0  # of the core's thread: frames, scheduling, planning, applying, sending
    host_ms_most: float = 0.0


@dataclass(slots=True)
class _Window:
    steps: int = 0
    rows: int = 0
    tokens: int = 0
    adapters: int = 0
    run_s: float = 0.0
    run_s_most: float = 0.0
    host_s: float = 0.0
    host_s_most: float = 0.0


class StepFigures:
    """Totals over the life of the process, and a window that each report empties."""

    def __init__(self) -> None:
        self.run_s_total = 0.0
        self.host_s_total = 0.0
        self._window = _Window()

    def note_step(self, *, rows: int, tokens: int, adapters: int, run_s: float) -> None:
        """A step has run."""
        window = self._window
        window.steps += 1
        window.rows += rows
        window.tokens += tokens
        window.adapters += adapters
        window.run_s += run_s
        window.run_s_most = max(window.run_s_most, run_s)
        self.run_s_total += run_s

    def note_turn(self, host_s: float) -> None:
        """One turn of the loop has ended, `host_s` of which it neither computed nor waited for a device."""
        window = self._window
        window.host_s += host_s
        window.host_s_most = max(window.host_s_most, host_s)
        self.host_s_total += host_s

    def take(self) -> StepState:
        window, self._window = self._window, _Window()
        count = max(1, window.steps)
        return StepState(
            steps=window.steps,
            rows=round(window.rows / count, 2),
            tokens=round(window.tokens / count, 2),
            adapters=round(window.adapters / count, 2),
            run_ms=_ms(window.run_s / count),
            run_ms_most=_ms(window.run_s_most),
            host_ms=_ms(window.host_s / count),
            host_ms_most=_ms(window.host_s_most),
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
