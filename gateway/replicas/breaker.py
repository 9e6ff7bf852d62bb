"""A circuit breaker per replica: transport failures, 5xx and streams that break off count; what a client did
wrong (4xx) and a full replica (429, 503 `replica_busy`) do not."""

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
    """Opens after consecutive failures; when `OPEN_S` have passed, one request probes, and its end
    decides."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._opened_at: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        if self._opened_at is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._clock() - self._opened_at >= OPEN_S else BreakerState.OPEN

    @property
    def admits(self) -> bool:
        state = self.state
        return state is BreakerState.CLOSED or (state is BreakerState.HALF_OPEN and not self._probing)

    def begin(self) -> None:
        """A request is sent; in the half-open state it is the only one."""
        if self.state is BreakerState.HALF_OPEN:
            self._probing = True

    def succeed(self) -> None:
        """At the end of an answer, not at its beginning."""
        self._failures, self._opened_at, self._probing = 0, None, False

    def fail(self) -> None:
        self._failures += 1
        if self._probing or self._failures >= FAILURES_TO_OPEN:
            self._opened_at = self._clock()
        self._probing = False

    def dismiss(self) -> None:
        """The request said nothing about the replica (the client left, the replica was full)."""
        self._probing = False
