"""Metrics of the limits."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

DECISIONS = Counter("motet_gateway_limit_decisions_total", "Decisions of the limits.", ["limit", "outcome"])
HELD = Gauge(
    "motet_gateway_reservations", "Reservations that requests in flight hold.", multiprocess_mode="livesum"
)
RESTORED = Counter(
    "motet_gateway_reservations_restored_total", "Reservations of running requests that Redis had lost."
)
LOCAL = Gauge(
    "motet_gateway_limits_local",
    "Workers that can't reach Redis and keep to their share of each limit.",
    multiprocess_mode="livesum",
)
LOCAL_ADMITTED = Counter(
    "motet_gateway_limits_local_admitted_total", "Requests admitted by a worker's own share of the limits."
)
