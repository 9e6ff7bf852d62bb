"""Metrics of metering."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

JOURNAL_BYTES = Counter("motet_gateway_journal_bytes_total", "Bytes written to usage journals.")
JOURNAL_SYNC = Histogram(
    "motet_gateway_journal_sync_seconds",
    "One fdatasync of a usage journal.",
    buckets=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0),
)
LEDGER_LAG = Gauge(
    "motet_gateway_ledger_lag_seconds",
    "Age of the oldest usage not yet in the ledger.",
    multiprocess_mode="livemax",
)
LEDGER_ROWS = Counter("motet_gateway_ledger_rows_total", "Rows that entered the ledger.", ["by"])
RECONCILE = Counter(
    "motet_gateway_reconciled_total",
    "Engine journal lines compared with the ledger: equal, added, mismatch, unbilled.",
    ["result"],
)
