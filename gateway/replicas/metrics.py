"""Metrics of the replicas, as this gateway sees them."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

REPLICA_UP = Gauge(
    "motet_gateway_replica_up",
    "Whether polling finds the replica ready.",
    ["replica"],
    multiprocess_mode="livemax",
)
RETRIES = Counter("motet_gateway_retries_total", "Attempts repeated before a first byte.", ["reason"])
ABORTS = Counter("motet_gateway_aborts_total", "Attempts stopped at the engine.", ["outcome"])
