"""Wire types of what needs attention."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

Severity = Literal["critical", "warning", "notice"]
"""Requests suffer, or money can't be counted; soon, or one tenant's; nothing hurts, and somebody waits."""

Kind = Literal[
    "requests_failing",
    "queue_growing",
    "no_replica",
    "replica_down",
    "replica_unfit",
    "replica_breaker_open",
    "replica_draining",
    "store_unreachable",
    "store_lost_versions",
    "store_check_failed",
    "usage_behind",
    "usage_unknown",
    "usage_unpriced",
    "budget_used",
    "budget_nearly_used",
    "rollout_rolled_back",
    "rollout_paused",
    "adapter_rejected",
    "proof_late",
]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing, and of what it is: what is null is no part of it."""

    kind: Kind
    severity: Severity
    message: str
    since: datetime | None = None
    tenant: UUID | None = None
    tenant_name: str | None = None
    adapter: str | None = None
    version: int | None = None
    rollout: UUID | None = None
    key_id: str | None = None
    replica: UUID | None = None


class QueueNow(msgspec.Struct, frozen=True, kw_only=True):
    """Of all workers, as the one that answers heard last; a request counts once for each choice. `wait_s`:
    what the last in line waits, null when nobody knows."""

    waiting: int
    waiting_tokens: int
    running: int
    places: int
    tokens_per_s: float | None
    wait_s: float | None


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """The worst first; at most 20 of a kind."""

    object: Literal["attention"] = "attention"
    looked_at: datetime
    queue: QueueNow
    data: list[Finding]
