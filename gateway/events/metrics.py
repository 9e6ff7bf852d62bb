"""Metrics of what is remembered of requests."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

EVENTS = Counter(
    "motet_gateway_request_events_total",
    "Ends of requests: written, sampled (left out in a flood), overflowed (the database was away for too"
    " long), or failed (it would not take them).",
    ["outcome"],
)
WAITING = Gauge(
    "motet_gateway_request_events_waiting", "Events on their way to PostgreSQL.", multiprocess_mode="livesum"
)
TALLIES_LOST = Counter(
    "motet_gateway_request_tallies_lost_total",
    "Requests, or minutes of a tenant and adapter, that are in no figure of a dashboard.",
)
SAMPLED, OVERFLOWED = EVENTS.labels("sampled"), EVENTS.labels("overflowed")
WRITTEN, FAILED = EVENTS.labels("written"), EVENTS.labels("failed")
