"""Redis: the client, keys that can't be built without their tenant, and Lua scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NewType, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from gateway.errors import Unavailable
from gateway.principal import TenantId
from gateway.redis_pipe import ScriptPipe

log = structlog.get_logger(__name__)

RedisKey = NewType("RedisKey", str)
"""Made by `TenantKeys` and `PlatformKeys` only."""


@dataclass(frozen=True, slots=True)
class TenantKeys:
    """Keys of one tenant. The tenant in braces is the cluster's hash tag: all of them lie in one slot, so
    one script may touch several."""

    tenant: TenantId

    def key(self, *parts: str) -> RedisKey:
        return RedisKey(":".join((f"{{{self.tenant}}}", *parts)))

    @property
    def epoch(self) -> RedisKey:
        """Tenant's epoch, an integer; absent = nothing changed since Redis was empty (see
        `tenants.epoch`)."""
        return self.key("epoch")


@dataclass(frozen=True, slots=True)
class PlatformKeys:
    """Keys that belong to no tenant: sessions of operators and limits on logging in."""

    room: str

    def key(self, *parts: str) -> RedisKey:
        return RedisKey(":".join((f"{{motet-{self.room}}}", *parts)))


class Script:
    """A Lua script, run by its digest; a server that has not seen it yet gets the source."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()  # EVALSHA's own name

    @classmethod
    def load(cls, *paths: Path) -> Script:
        """One script out of its files, one after the other: shared parts come first."""
        return cls("".join(path.read_text(encoding="utf-8") for path in paths))

    async def __call__(
        self, redis: Redis, keys: Sequence[RedisKey], args: Sequence[str | int | float | bytes]
    ) -> Any:
        """The script's answer. Raises `Unavailable` when Redis can't answer."""
        with redis_errors():
            try:
                return await redis.evalsha(self._sha, len(keys), *keys, *args)
            except NoScriptError:
                return await redis.eval(self._source, len(keys), *keys, *args)


class PipedRedis(Redis):
    """What every request needs goes through one pipe, the rest through a pool of connections."""

    pipe: ScriptPipe

    async def evalsha(self, sha: str, numkeys: int, *keys_and_args: Any) -> Any:
        return await self.pipe.call("EVALSHA", sha, numkeys, *keys_and_args)

    async def eval(self, script: str, numkeys: int, *keys_and_args: Any) -> Any:
        return await self.pipe.call("EVAL", script, numkeys, *keys_and_args)

    async def get(self, name: Any) -> Any:
        return await self.pipe.call("GET", name)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await self.pipe.close()
        await super().aclose(close_connection_pool)


def connect(url: str, *, max_connections: int = 64, timeout_s: float = 2.0) -> Redis:
    """A client that answers bytes. It never retries by itself: a script that ran must not run twice. Who
    finds no connection free waits for one, as long as for an answer."""
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=timeout_s,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        health_check_interval=15,
        retry=Retry(NoBackoff(), 0),
        retry_on_timeout=False,
    )
    client = cast(PipedRedis, PipedRedis.from_pool(pool))
    client.pipe = ScriptPipe(url, timeout_s)
    return client


class redis_errors:  # noqa: N801  used as a statement, and as a class it costs a third of a generator
    """Redis that can't answer is our fault and passing: raises `Unavailable`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, RedisError | OSError) and not isinstance(error, NoScriptError):
            log.warning("redis_unavailable", error=type(error).__name__, reason=str(error)[:300])
            raise Unavailable("The limiter cannot answer now. Try again shortly.") from error
