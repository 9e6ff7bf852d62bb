"""Where a tenant's answers of one kind lie in Redis: their index, their sum, and each entry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from redis.asyncio import Redis

from gateway.principal import TenantId
from gateway.redis import RedisKey, Script, TenantKeys

BOUNDED = Path(__file__).parent / "bounded.lua"
_DROP = Script.load(BOUNDED, Path(__file__).parent / "drop.lua")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one tenant's answers of one kind."""

    items: int
    bytes: int
    entry_bytes: int


@dataclass(frozen=True, slots=True)
class Shelf:
    """Keys of one tenant's answers of one kind, in the order in which the scripts take them."""

    tenant: TenantId
    kind: str

    def entry(self, name: str) -> RedisKey:
        return TenantKeys(self.tenant).key(self.kind, name)

    @property
    def prefix(self) -> RedisKey:
        return self.entry("")

    @property
    def index(self) -> RedisKey:
        return TenantKeys(self.tenant).key(f"{self.kind}-index")

    @property
    def total(self) -> RedisKey:
        return TenantKeys(self.tenant).key(f"{self.kind}-bytes")

    async def drop(self, redis: Redis) -> int:
        """Forgets all of it; gives how many entries there were. Raises `Unavailable`."""
        dropped = 0
        while went := int(await _DROP(redis, [self.index, self.total], [self.prefix])):
            dropped += went
        return dropped
