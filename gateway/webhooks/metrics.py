"""Metrics of webhooks, at control's `/metrics`."""

from __future__ import annotations

from prometheus_client import Counter

TRIES = Counter("motet_webhook_tries_total", "Tries to deliver an event to an endpoint.", ["outcome"])
DISABLED = Counter("motet_webhook_endpoints_disabled_total", "Endpoints that were given up.")
