"""The records of idempotency keys in Redis, moved by one script each.

    no record ── claim ──► running ── complete ──► done, or spent when its answer could not be kept
                             │  ▲
                  release ◄──┘  └── claim, after the lease ran out: the next generation of the same request
    done, spent ── retract ──► no record: its usage could not be recorded

A try is named by its request's id and its generation, and every step but `claim` compares both: an owner that
was silent for longer than its lease can't end what another runs in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any
from uuid import UUID

from redis.asyncio import Redis

from gateway.answers.shelf import BOUNDED, Bounds, Shelf
from gateway.errors import Unavailable
from gateway.principal import TenantId
from gateway.redis import RedisKey, Script

KIND = "idempotency"
KEPT_S = 24 * 3600
"""How long a key is honoured, from its first try on."""

CALL_TIMEOUT_S = 3.0

_HERE = Path(__file__).parent
_CLAIM = Script.load(_HERE / "claim.lua")
_RENEW = Script.load(_HERE / "renew.lua")
_COMPLETE = Script.load(BOUNDED, _HERE / "record.lua", _HERE / "complete.lua")
_RETRACT = Script.load(BOUNDED, _HERE / "record.lua", _HERE / "retract.lua")
_RELEASE = Script.load(_HERE / "release.lua")


class What(Enum):
    """What a claim found."""

    NEW = "new"
    TAKEN = "taken"
    RUNNING = "running"
    DONE = "done"
    SPENT = "spent"
    OTHER = "other"  # the key stands for another request


@dataclass(frozen=True, slots=True)
class Found:
    what: What
    request_id: UUID | None
    generation: int
    sealed: bytes


@dataclass(frozen=True, slots=True)
class Hold:
    """One try at one request: who may end its record."""

    tenant: TenantId
    name: str
    request_id: UUID
    generation: int


class Standing(IntEnum):
    """Whose a record is, as the scripts number it."""

    LOST = -1  # another try runs in its place
    FORGOTTEN = 0
    OWN = 1


class Records:
    """One per worker."""

    def __init__(self, redis: Redis, bounds: Bounds, *, lease_s: float) -> None:
        self._redis = redis
        self._lease_ms = int(lease_s * 1000)
        self.bounds = bounds

    async def claim(self, tenant: TenantId, name: str, digests: Sequence[bytes], request_id: UUID) -> Found:
        """`digests`: of the request, under the current key and the previous one. Raises `Unavailable`."""
        previous = digests[1] if len(digests) > 1 else b""
        limits = [self._lease_ms, KEPT_S * 1000]
        what, request, generation, sealed = await self._call(
            _CLAIM, [_shelf(tenant).entry(name)], [digests[0], previous, str(request_id), *limits]
        )
        return Found(
            What(what.decode()), UUID(request.decode()) if request else None, int(generation), sealed
        )

    async def renew(self, hold: Hold) -> tuple[Standing, float | None]:
        """Also the seconds since a retry last asked for it, None if none did. Raises `Unavailable`."""
        standing, since_ms = await self._call(
            _RENEW, [_entry(hold)], [str(hold.request_id), hold.generation, self._lease_ms]
        )
        return Standing(int(standing)), None if int(since_ms) < 0 else int(since_ms) / 1000

    async def complete(self, hold: Hold, sealed: bytes | None) -> Standing:
        """`sealed` None: there is an answer, and it is not kept. Raises `Unavailable`."""
        shelf = _shelf(hold.tenant)
        limits = [self.bounds.items, self.bounds.bytes]
        return Standing(
            int(
                await self._call(
                    _COMPLETE,
                    [_entry(hold), shelf.index, shelf.total],
                    [str(hold.request_id), hold.generation, hold.name, shelf.prefix, *limits, sealed or b""],
                )
            )
        )

    async def retract(self, hold: Hold) -> Standing:
        """Of a try that was completed. Raises `Unavailable`."""
        shelf = _shelf(hold.tenant)
        args: list[str | int | bytes] = [str(hold.request_id), hold.generation, hold.name]
        return Standing(int(await self._call(_RETRACT, [_entry(hold), shelf.index, shelf.total], args)))

    async def release(self, hold: Hold) -> Standing:
        """Raises `Unavailable`."""
        ended = await self._call(_RELEASE, [_entry(hold)], [str(hold.request_id), hold.generation])
        return Standing(int(ended))

    async def drop(self, tenant: TenantId) -> int:
        """Forgets a tenant's answers; part of deleting a tenant. Raises `Unavailable`."""
        return await _shelf(tenant).drop(self._redis)

    async def _call(self, script: Script, keys: Sequence[RedisKey], args: Sequence[str | int | bytes]) -> Any:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await script(self._redis, keys, args)
        except TimeoutError as error:
            raise Unavailable("The store of answers cannot answer now. Try again shortly.") from error


def _shelf(tenant: TenantId) -> Shelf:
    return Shelf(tenant, KIND)


def _entry(hold: Hold) -> RedisKey:
    return _shelf(hold.tenant).entry(hold.name)
