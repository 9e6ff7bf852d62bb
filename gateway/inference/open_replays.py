"""Builds what answers without computing, out of a worker's other parts."""

from __future__ import annotations

from dataclasses import dataclass

from redis.asyncio import Redis

from gateway.answers.shelf import Bounds
from gateway.config import Settings
from gateway.db import Database
from gateway.idempotency.records import Records
from gateway.idempotency.service import Idempotency
from gateway.inference.replays import ReplayParts, Replays
from gateway.inference.response_cache import ResponseCache
from gateway.limits.limiter import Limiter
from gateway.receipts.issuer import Issuer
from gateway.replicas.opening import data_keys
from gateway.replicas.registry import Registry
from gateway.usage.journal import Journal

IDEMPOTENT_ITEMS = 10_000
"""Answers kept of one tenant for retries."""

LEASE_S = 15.0
"""A first try that was silent for this long has died: the next request of its key runs in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayNeeds:
    """What replays are built on; owned by the worker."""

    settings: Settings
    db: Database
    redis: Redis
    registry: Registry
    limiter: Limiter
    journal: Journal
    receipts: Issuer


def make_replays(needs: ReplayNeeds, *, lease_s: float = LEASE_S) -> Replays:
    """Its `run` renews what it holds. Raises ValueError for a key that is too short."""
    settings = needs.settings
    keys = data_keys(settings)
    bounds = Bounds(IDEMPOTENT_ITEMS, settings.idempotency_tenant_bytes, settings.idempotency_answer_bytes)
    records = Records(needs.redis, bounds, lease_s=lease_s)
    cache = ResponseCache(
        needs.redis,
        keys,
        entry_bytes=settings.response_cache_entry_bytes,
        tenant_bytes=settings.response_cache_tenant_bytes,
    )
    return Replays(
        ReplayParts(
            cache=cache,
            idempotency=Idempotency(
                records, keys, needs.db, lease_s=lease_s, grace_s=settings.retry_grace_ms / 1000
            ),
            keys=keys,
            registry=needs.registry,
            limiter=needs.limiter,
            journal=needs.journal,
            receipts=needs.receipts,
            wait_s=settings.response_cache_wait_s,
        )
    )
