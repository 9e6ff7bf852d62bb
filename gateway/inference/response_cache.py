"""The response cache: exact, opt-in for each tenant, sealed and bounded in Redis.

A look-up is one GET of a name that only its tenant's key makes, so it takes the same steps whatever others
have kept. `entry` and `opened` stand apart from the trip between them, so that a script that makes another
trip anyway may carry it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import structlog
from redis.asyncio import Redis

from gateway.answers import answer as answers
from gateway.answers.answer import Answer
from gateway.answers.sealing import DataKeys, Label
from gateway.answers.shelf import BOUNDED, Bounds, Shelf
from gateway.errors import Unavailable
from gateway.inference.metrics import CACHE
from gateway.inference.response_cache_key import CacheKey
from gateway.principal import TenantId
from gateway.redis import RedisKey, Script, redis_errors

log = structlog.get_logger(__name__)

KIND = "response"
PURPOSE = f"response cache {answers.FORMAT}"
MAX_ITEMS = 10_000
"""Answers kept of one tenant."""

_KEEP = Script.load(BOUNDED, Path(__file__).parent / "keep_answer.lua")


class ResponseCache:
    """One per worker. A Redis that can't answer makes a miss, never an error: the cache is no promise."""

    def __init__(self, redis: Redis, keys: DataKeys, *, entry_bytes: int, tenant_bytes: int) -> None:
        self._redis = redis
        self._keys = keys
        self.bounds = Bounds(MAX_ITEMS, tenant_bytes, entry_bytes)

    def entry(self, key: CacheKey) -> RedisKey:
        """Where the answer lies, if it does."""
        return _shelf(key.tenant).entry(key.name)

    def opened(self, key: CacheKey, sealed: bytes | None) -> Answer | None:
        """What lay there; None for nothing, and for what does not open."""
        if sealed is None:
            return None
        data = self._keys.open(_label(key), sealed)
        try:
            return None if data is None else answers.decode(data)
        except msgspec.MsgspecError:
            log.exception("cached_answer_unreadable", tenant=str(key.tenant))
            return None

    async def find(self, key: CacheKey) -> Answer | None:
        try:
            with redis_errors():
                sealed: Any = await self._redis.get(self.entry(key))
        except Unavailable:
            CACHE.labels("unavailable").inc()
            return None
        return self.opened(key, sealed)

    async def keep(self, key: CacheKey, answer: Answer) -> bool:
        """Whether it is kept now by this call."""
        sealed = self._keys.seal(_label(key), answers.encode(answer))
        if len(sealed) > self.bounds.entry_bytes:
            CACHE.labels("too_large").inc()
            return False
        shelf = _shelf(key.tenant)
        limits = [self.bounds.items, self.bounds.bytes, key.age_s * 1000]
        try:
            kept = await _KEEP(
                self._redis,
                [shelf.entry(key.name), shelf.index, shelf.total],
                [key.name, shelf.prefix, *limits, sealed],
            )
        except Unavailable:
            CACHE.labels("unavailable").inc()
            return False
        if int(kept):
            CACHE.labels("kept").inc()
        return bool(kept)


async def drop(redis: Redis, tenant: TenantId) -> int:
    """Forgets all of a tenant's cached answers; gives their number. Raises `Unavailable`."""
    return await _shelf(tenant).drop(redis)


def _shelf(tenant: TenantId) -> Shelf:
    return Shelf(tenant, KIND)


def _label(key: CacheKey) -> Label:
    return Label(PURPOSE, key.tenant, key.name)
