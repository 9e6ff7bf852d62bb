"""Metrics of control's placing."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

CALLS = Counter(
    "motet_control_placement_calls_total",
    "Adapters that replicas were asked to load (load) or to keep (keep), by how the call ended.",
    ["kind", "outcome"],
)
SHORT = Gauge(
    "motet_control_placements_short", "Placements that fewer replicas hold than are asked for, as last seen."
)
