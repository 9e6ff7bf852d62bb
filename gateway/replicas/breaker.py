"""A circuit breaker per replica: transport failures, 5xx and streams that break off count, at the end of an
answer; what a client did wrong (4xx) and a full replica (429, 503 `replica_busy`) do not.

Each worker has its own, fed by its own requests: in the half-open state each lets one through.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

FAILURES_TO_OPEN = 5
OPEN_S = 5.0


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Opens after consecutive failures; when `OPEN_S` have passed, one request probes, and its end alone
    decides. Ends of requests that began before it opened say nothing any more."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def closed(self) -> bool:
        return self._opened_at is None

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._clock() - self._opened_at >= OPEN_S else BreakerState.OPEN

    @property
    def opens_in_s(self) -> float:
        """Seconds until it lets a probe through; 0 where it does, or one is under way."""
        if self._opened_at is None:
            return 0.0
        return max(0.0, OPEN_S - (self._clock() - self._opened_at))

    @property
    def admits(self) -> bool:
        state = self.state
        return state is BreakerState.CLOSED or (state is BreakerState.HALF_OPEN and not self._probing)

    def begin(self) -> bool:
        """A request is sent; whether it is the probe. Its end says so again."""
        if self._probing or self.state is not BreakerState.HALF_OPEN:
            return False
        self._probing = True
        return True

    def succeed(self, *, probe: bool = False) -> None:
        """At the end of an answer, not at its beginning."""
        if probe or self.closed:
            self._failures = 0
        if probe:
            self._opened_at, self._probing = None, False

    def fail(self, *, probe: bool = False) -> None:
        self._failures += 1
        if probe or (self.closed and self._failures >= FAILURES_TO_OPEN):
            self._opened_at = self._clock()
        if probe:
            self._probing = False

    def dismiss(self, *, probe: bool = False) -> None:
        """The request said nothing about the replica (the client left, the replica was full)."""
        if probe:
            self._probing = False
