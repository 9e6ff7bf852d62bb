"""Metrics of idempotent requests."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

REQUESTS = Counter(
    "motet_gateway_idempotent_requests_total",
    "Requests with an idempotency key, by what they found or became.",
    ["outcome"],
)
WAITING = Gauge(
    "motet_gateway_idempotent_waiting",
    "Requests that wait for their first try to end.",
    multiprocess_mode="livesum",
)
