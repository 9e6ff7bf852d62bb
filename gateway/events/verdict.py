"""What a request came to, off what its walk left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.errors import ApiError
from gateway.events.event import Outcome

if TYPE_CHECKING:
    from gateway.events.trace import Trace

QUEUE_CODES: Final = frozenset({"queue_full", "queue_too_long", "queue_timeout"})
NO_ROOM: Final = "too_many_open_requests"
LIMIT_STATUS: Final = 429
STOPPING: Final = "gateway_stopping"
UNEXPECTED: Final = "internal_error"
BROKE_OFF: Final = "upstream_error"


class Verdict(NamedTuple):
    """`status`: None = its client had left."""

    outcome: Outcome
    status: int | None
    code: str | None


def verdict_of(trace: Trace) -> Verdict:
    error = trace.error
    if trace.client_left:
        return Verdict(Outcome.CLIENT_LEFT, None, None)
    if error is not None:
        return Verdict(_kind(error), error.status, error.code)
    if trace.stopped:
        return Verdict(Outcome.FAILED, 503, STOPPING)
    if trace.kept is not None:
        return Verdict(Outcome(trace.kept), 200, None)
    metered = trace.metered
    if metered is None:
        return Verdict(Outcome.FAILED, 500, UNEXPECTED)
    if metered.outcome == "finished":
        return Verdict(Outcome.SERVED, 200, None)
    return Verdict(Outcome.FAILED, 502, BROKE_OFF)  # within a stream, which had begun


def _kind(error: ApiError) -> Outcome:
    """The 503s and 504s of the queue and of the bound on open requests are refusals too: nothing of ours is
    broken."""
    refused = error.status < 500 or error.code in QUEUE_CODES or error.code == NO_ROOM
    return Outcome.REFUSED if refused else Outcome.FAILED
