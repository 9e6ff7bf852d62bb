"""What webhooks tell of. A closed list: endpoints choose from it, and receivers switch over it."""

from __future__ import annotations

from enum import StrEnum


class EventKind(StrEnum):
    """`data` of each is in docs/API.md. New kinds are added, none changes its meaning."""

    PING = "ping"  # asked for by whoever set the endpoint up; goes to that one only
    BUDGET_THRESHOLD = "budget.threshold"
    EXPORT_READY = "export.ready"
    EXPORT_FAILED = "export.failed"
    KEY_CREATED = "key.created"
    KEY_ROTATED = "key.rotated"
    KEY_REVOKED = "key.revoked"
    ADAPTER_STATE_CHANGED = "adapter.state_changed"
    ADAPTER_ALIAS_CHANGED = "adapter.alias_changed"
    ROLLOUT_CHANGED = "rollout.changed"
    ADAPTER_SHARE_CHANGED = "adapter.share_changed"


SUBSCRIBABLE = frozenset(EventKind) - {EventKind.PING}
