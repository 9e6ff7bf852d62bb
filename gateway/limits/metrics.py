"""Metrics of the limits."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

DECISIONS = Counter("motet_gateway_limit_decisions_total", "Decisions of the limits.", ["limit", "outcome"])
HELD = Gauge(
    "motet_gateway_reservations", "Reservations that requests in flight hold.", multiprocess_mode="livesum"
)
