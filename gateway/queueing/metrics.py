"""Metrics of the queue. Labels are closed lists: classes, bounds, outcomes."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from gateway.queueing.classes import CLASSES

WAIT_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)

QUEUE_WAIT = Histogram(
    "motet_gateway_queue_wait_seconds",
    "Time from entering the queue to a place.",
    ["service_class"],
    buckets=WAIT_BUCKETS,
)
WAITING = Gauge(
    "motet_gateway_requests_waiting",
    "Requests in the queue.",
    ["service_class"],
    multiprocess_mode="livesum",
)
WAITING_TOKENS = Gauge(
    "motet_gateway_tokens_waiting",
    "Estimated tokens of requests in the queue.",
    ["service_class"],
    multiprocess_mode="livesum",
)
WAITING_BYTES = Gauge("motet_gateway_bytes_waiting", "Bodies held by the queue.", multiprocess_mode="livesum")
RUNNING = Gauge("motet_gateway_requests_running", "Places taken at replicas.", multiprocess_mode="livesum")
SHED = Counter("motet_gateway_queue_shed_total", "Requests turned away by the queue.", ["bound"])
EXCHANGES = Counter(
    "motet_gateway_queue_exchanges_total", "Reports to the other workers, by what came of them.", ["outcome"]
)
ALONE = Gauge(
    "motet_gateway_queue_alone",
    "Workers that can't reach Redis and keep to a fixed part of the places.",
    multiprocess_mode="livesum",
)

WAIT_BY_CLASS = [QUEUE_WAIT.labels(name) for name in CLASSES]
