"""How the workers of all gateways share the replicas' places: each reports what it uses and wants, and hears
what it may use, in one script (`exchange.lua`).

The state lies under keys of the platform, in a slot of their own: it is no tenant's, and the scripts of the
limits touch one tenant's slot only (docs/decisions/0036). A worker that crashed is not heard of again, and
what it held is free once its lease is over.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

import msgspec
from redis.asyncio import Redis

from gateway.errors import Unavailable
from gateway.queueing.places import DISTANCE, FRESH_S, Places, Reply, Report
from gateway.redis import PlatformKeys, Script, redis_errors

LEASE_S: Final = 10.0
"""What a worker holds is free again so long after its last report."""
CALL_TIMEOUT_S: Final = 1.0
POOL: Final = "queue"
"""Names the replicas that are shared."""

EXCHANGE: Final = Script.load(Path(__file__).parent / "exchange.lua")
_REPLY: Final = msgspec.json.Decoder(Reply)


class Exchange(Protocol):
    """One a worker."""

    lease_s: float

    async def report(self, report: Report, places: Places) -> Reply | None:
        """None: a later report was heard first. Raises `Unavailable`."""
        ...

    async def leave(self) -> None:
        """What the worker holds is free at once. Raises `Unavailable`."""
        ...


class RedisExchange:
    def __init__(
        self, redis: Redis, *, pool: str = POOL, lease_s: float = LEASE_S, fresh_s: float = FRESH_S
    ) -> None:
        self._redis = redis
        self._worker = uuid4().hex
        keys = PlatformKeys(pool)
        self._keys = [keys.key("workers"), keys.key("classes")]
        self.lease_s = lease_s
        self._fresh_s = fresh_s

    async def report(self, report: Report, places: Places) -> Reply | None:
        args: list[str | int | float] = [
            self._worker,
            msgspec.json.encode(report).decode(),
            places.capacity,
            places.margin,
            round(self.lease_s * 1000),
            round(self._fresh_s * 1000),
            DISTANCE,
        ]
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer = await EXCHANGE(self._redis, self._keys, args)
        except TimeoutError as error:
            raise Unavailable("The queue can't be shared now.") from error
        return _REPLY.decode(answer) if answer else None

    async def leave(self) -> None:
        try:
            with redis_errors():
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    await self._redis.hdel(self._keys[0], self._worker)
        except TimeoutError as error:
            raise Unavailable("The queue can't be shared now.") from error
