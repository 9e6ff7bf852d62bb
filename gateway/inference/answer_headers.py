"""What the headers of an answer tell."""

from __future__ import annotations

import time

from gateway.events.trace import Step
from gateway.inference.call import Attempt, Call, Trip
from gateway.inference.keeping import CACHE_HEADER
from gateway.limits.reservation import Reservation


def answer_headers(call: Call, reservation: Reservation | None) -> dict[str, str]:
    """Which weights answer, what is left of the limits, and the limit that was taken for granted."""
    found = dict(reservation.headers) if reservation else {}
    if (adapter := call.resolved.adapter) is not None:
        found["x-motet-adapter"] = adapter.label
        found["x-motet-version"] = str(adapter.version)
        found["x-motet-digest"] = adapter.artefact
    if call.request.token_limit is None:
        found["x-motet-default-max-tokens"] = str(call.max_tokens)
    return found | {CACHE_HEADER: "off"}


def waited(trip: Trip) -> dict[str, str]:
    """What is known with an answer's first byte: how long it stood in the queue."""
    return {"x-motet-queue-ms": str(round(trip.trace.spent_s[Step.QUEUE] * 1000))}


def served_from(attempt: Attempt) -> dict[str, str]:
    """What the replica tells at the end: where the adapter lay, and how long its load was waited for."""
    trailer = attempt.trailer
    if trailer is None or not trailer.tier:
        return {}
    return {"x-motet-tier": trailer.tier, "x-motet-load-ms": str(round(trailer.timings.load_ms))}


def processing(call: Call) -> dict[str, str]:
    spent = time.monotonic() - call.arrived
    return {"openai-processing-ms": str(round(spent * 1000))}
