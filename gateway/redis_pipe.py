"""What every request needs of Redis, in one pipe: a fraction of the CPU that a call through a pool of
connections costs (docs/decisions/0070).

Calls made in one turn of the event loop leave in one write, and answers come back in order. hiredis packs and
parses; here is only who waits for which answer. Everything else goes through redis-py.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import hiredis
from redis import exceptions as errors
from redis.asyncio.connection import parse_url

MAX_WAITING: Final = 16_384
"""Calls without an answer yet; more are refused."""

Argument = str | bytes | int | float | memoryview


class ScriptPipe(asyncio.Protocol):
    """One connection, made at the first call and again after it was lost. Owned by one event loop.

    Nothing is sent twice: a call whose connection is lost may have run, and its caller hears that it failed.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self._target = parse_url(url)
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._introduced = False  # before it, a call would reach a server that doesn't know us yet
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._outgoing: list[bytes] = []
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False

    async def call(self, *command: Argument) -> Any:
        """The server's answer. Raises `RedisError`: its own, or that it can't be reached or is silent."""
        if not self._introduced or self._transport is None or self._transport.is_closing():
            await self._connect()
        return await self._send(command)

    async def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._fail(errors.ConnectionError("The connection to Redis was closed."))

    def _send(self, command: Sequence[Argument]) -> asyncio.Future[Any]:
        if len(self._waiting) >= MAX_WAITING:
            raise errors.ConnectionError("Too many calls wait for Redis.")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        packed = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # tuples are invariant in its stub
        if not self._outgoing:
            loop.call_soon(self._flush)
        self._outgoing.append(packed)
        now = loop.time()
        self._waiting.append((answer, now))
        if self._watch is None:
            self._watch = loop.call_at(now + self._timeout_s, self._look)
        return answer

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(outgoing)

    def _look(self) -> None:
        """Gives a silent server up: who waits for it learns so in time."""
        self._watch = None
        if not self._waiting:
            return
        due = self._waiting[0][1] + self._timeout_s
        loop = asyncio.get_running_loop()
        if due > loop.time():
            self._watch = loop.call_at(due, self._look)
            return
        self._fail(errors.TimeoutError(f"Redis did not answer within {self._timeout_s:g} s."))
        if self._transport is not None:
            self._transport.abort()

    # what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._introduced = False
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no asyncio.Transport by type
        self._reader = hiredis.Reader()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (answer := self._reader.gets()) is not False:
            waits, _ = self._waiting.popleft()
            if waits.done():  # its caller left
                continue
            if isinstance(answer, Exception):
                waits.set_exception(_as_redis_error(answer))
            else:
                waits.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail(errors.ConnectionError(f"The connection to Redis was lost: {error}"))

    def _fail(self, error: errors.RedisError) -> None:
        waiting, self._waiting = self._waiting, deque()
        self._outgoing = []
        for waits, _ in waiting:
            if not waits.done():
                waits.set_exception(error)

    # connecting

    async def _connect(self) -> None:
        """One attempt for all who wait for it."""
        if self._closed:
            raise errors.ConnectionError("The connection to Redis was closed.")
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._open(), name="redis-connect")
        await asyncio.shield(self._connecting)

    async def _open(self) -> None:
        target, loop = self._target, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                if path := target.get("path"):
                    await loop.create_unix_connection(lambda: self, path)
                else:
                    host, port = target.get("host", "localhost"), target.get("port", 6379)
                    await loop.create_connection(lambda: self, host, port, ssl=self._tls())
                await self._introduce()
        except TimeoutError as error:
            self._drop()
            raise errors.TimeoutError("Redis takes no connection in time.") from error
        except OSError as error:
            raise errors.ConnectionError(f"Redis can't be reached: {error}") from error
        except errors.RedisError:
            self._drop()
            raise

    async def _introduce(self) -> None:
        target = self._target
        if password := target.get("password"):
            user = target.get("username")
            await self._send(["AUTH", user, password] if user else ["AUTH", password])
        if db := target.get("db"):
            await self._send(["SELECT", db])
        self._introduced = True

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def _tls(self) -> ssl.SSLContext | None:
        if "connection_class" not in self._target:
            return None
        return ssl.create_default_context(cafile=str(self._target.get("ssl_ca_certs") or "") or None)


def _as_redis_error(answer: Exception) -> errors.RedisError:
    text = str(answer)
    kind, _, rest = text.partition(" ")
    return _ERRORS[kind](rest) if kind in _ERRORS else errors.ResponseError(text)


_ERRORS = {
    "NOSCRIPT": errors.NoScriptError,
    "LOADING": errors.BusyLoadingError,
    "WRONGPASS": errors.AuthenticationError,
}
