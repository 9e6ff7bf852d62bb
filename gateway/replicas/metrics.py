"""Metrics of the replicas, as this gateway sees them."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

REPLICA_UP = Gauge(
    "motet_gateway_replica_up",
    "Whether it is found ready.",
    ["replica"],
    multiprocess_mode="livemax",
)
REPLICA_UNFIT = Gauge(
    "motet_gateway_replica_unfit",
    "Whether it is kept out because it holds another base or other weights.",
    ["replica"],
    multiprocess_mode="livemax",
)
BREAKERS = Gauge(
    "motet_gateway_breaker_state",
    "Workers whose circuit breaker of a replica is in a state.",
    ["replica", "state"],
    multiprocess_mode="livesum",
)
CHOICES = Counter(
    "motet_gateway_adapter_loads_total",
    "Requests sent where their adapter is not: to one of its homes (load), or elsewhere (swap).",
    ["kind"],
)
RETRIES = Counter("motet_gateway_retries_total", "Attempts repeated before a first byte.", ["reason"])
ABORTS = Counter("motet_gateway_aborts_total", "Attempts stopped at the engine.", ["outcome"])
