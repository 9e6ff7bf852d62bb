"""Metrics of the queue."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

WAIT_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

QUEUE_WAIT = Histogram(
    "motet_gateway_queue_wait_seconds", "Time from entering the queue to a place.", buckets=WAIT_BUCKETS
)
WAITING = Gauge("motet_gateway_requests_waiting", "Requests in the queue.", multiprocess_mode="livesum")
RUNNING = Gauge("motet_gateway_requests_running", "Requests at replicas.", multiprocess_mode="livesum")
SHED = Counter("motet_gateway_queue_shed_total", "Requests turned away by the queue.", ["bound"])
