"""Metrics of the object store, at the control process's `/metrics`."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

ORPHANS_REMOVED = Counter(
    "motet_control_orphans_removed_total", "Stored artefacts that no version referred to, removed."
)
MISSING = Gauge("motet_control_artefacts_missing", "Versions whose artefact is not in the store.")
