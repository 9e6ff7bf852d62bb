"""What a request leaves behind while it walks: where it is, how long each step took, what it came to.

One a request, filled by plain assignments of what the walk has anyway: nothing is computed before the end.
It names nothing that holds the request's body.
"""

from __future__ import annotations

import time
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from adapters.wire import InferenceRequest
    from gateway.catalog.resolved import Resolved
    from gateway.errors import ApiError
    from gateway.inference.call import Trip
    from gateway.principal import Principal
    from gateway.usage.event import UsageEvent


class Step(IntEnum):
    """In the order of the walk (docs/ARCHITECTURE.md). One that is entered twice has one time in all."""

    AUTH = 0  # from the first byte of its head to a known key
    LIMITS = 1  # at the door, and again once its tokens are counted
    BODY = 2
    RESOLVE = 3  # decoding, and the catalog
    KEPT = 4  # looking, or waiting, for an answer that is there
    COUNT = 5
    QUEUE = 6
    FIRST_BYTE = 7  # from a place to the first bytes of a stream, or to a whole answer
    STREAM = 8
    END = 9  # journal and settling; the abort of one whose client left


NUM_STEPS = len(Step)


class Trace:
    """Times are of the monotonic clock: `began` when its head came, `arrived` when its handler got it."""

    __slots__ = (
        "arrived",
        "at",
        "attempts",
        "began",
        "client_left",
        "client_request_id",
        "entered",
        "error",
        "held_back",
        "kept",
        "metered",
        "original",
        "principal",
        "prompt_tokens",
        "reached",
        "replica",
        "request",
        "resolved",
        "spent_s",
        "stopped",
    )

    def __init__(self, arrived: float | None = None, began: float | None = None) -> None:
        self.arrived = time.monotonic() if arrived is None else arrived
        self.began = self.arrived if began is None else began
        self.spent_s = [0.0] * NUM_STEPS
        self.spent_s[Step.AUTH] = self.arrived - self.began
        self.at = Step.LIMITS
        self.entered = self.arrived
        self.reached = self.at  # the last step that was not its end
        self.principal: Principal | None = None  # as it was when the body was read
        self.client_request_id: str | None = None
        self.request: InferenceRequest | None = None
        self.resolved: Resolved | None = None
        self.prompt_tokens: int | None = None  # as the gateway counted them
        self.kept: str | None = None  # "cached" or "replayed": its answer was there
        self.original: UUID | None = None  # the request whose answer it got, or as which it went on
        self.held_back: str | None = None  # why it had to wait in the queue
        self.attempts = 0
        self.replica: str | None = None
        self.metered: UsageEvent | None = None  # its last attempt's row, once that is journalled
        self.error: ApiError | None = None  # what its client heard
        self.client_left = False
        self.stopped = False  # its process left

    def enter(self, step: Step) -> None:
        """The step before ends now."""
        now = time.monotonic()
        self.spent_s[self.at] += now - self.entered
        self.at, self.entered = step, now
        if step is not Step.END:
            self.reached = step

    def close(self) -> None:
        """The last one ends now."""
        now = time.monotonic()
        self.spent_s[self.at] += now - self.entered
        self.entered = now

    def observe(self, trip: Trip) -> None:
        """How far a request came that was dispatched."""
        self.attempts = trip.tries
        last = trip.attempt.replica if trip.attempt is not None else next(reversed(trip.tried), None)
        self.replica = None if last is None else last.url
        if trip.ticket is not None:
            self.held_back = trip.ticket.held_back
