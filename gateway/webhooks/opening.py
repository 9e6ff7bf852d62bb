"""Builds the parts of webhooks: a worker's, and the leader's."""

from __future__ import annotations

from gateway.config import Settings
from gateway.db import Database
from gateway.replicas.opening import data_keys
from gateway.webhooks.delivery import Deliveries
from gateway.webhooks.destinations import DestinationRules
from gateway.webhooks.sealed import Sealer
from gateway.webhooks.sender import Sender
from gateway.webhooks.service import Webhooks


def destination_rules(settings: Settings) -> DestinationRules:
    """Raises ValueError for settings that make no sense."""
    return DestinationRules.of(settings.webhook_networks, settings.webhook_ports, settings.webhook_http)


def open_webhooks(settings: Settings, db: Database) -> Webhooks:
    """Raises ValueError for settings that make no sense."""
    return Webhooks(db, Sealer(data_keys(settings)), destination_rules(settings))


def open_deliveries(settings: Settings, db: Database) -> Deliveries:
    """Raises ValueError for settings that make no sense."""
    return Deliveries(db, Sender(destination_rules(settings)), Sealer(data_keys(settings)))
