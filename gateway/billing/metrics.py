"""Metrics of billing, at control's `/metrics`."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

CHARGES = Counter("motet_billing_charges_total", "Charge rows that were added.", ["reason"])
UNPRICED = Gauge("motet_billing_unpriced_buckets", "Quarters of an hour with usage that no price covers yet.")
COMPLETE_UNTIL = Gauge(
    "motet_billing_complete_until_timestamp_seconds", "All usage that ended before this is in the ledger."
)
CLOSING_BLOCKED = Gauge(
    "motet_billing_closing_blocked", "1 for the reason why the oldest ended month is not closed.", ["reason"]
)
EXPORTS = Counter("motet_billing_exports_total", "Exports that were made, or failed.", ["outcome"])
