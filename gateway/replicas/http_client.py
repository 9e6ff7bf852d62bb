"""Requests for answers, over HTTP/1.1 keep-alive on httptools: the part of a replica's traffic that is paid
for with every frame (docs/decisions/0071). Control calls go through aiohttp.

A response is read as it comes, and no further ahead than `READ_AHEAD_BYTES`. One that has neither a length
nor chunks is taken for cut: a replica sends one of them.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from gateway.replicas.driver import UpstreamFailed
from gateway.sockets import bound_reading

READ_AHEAD_BYTES: Final = 64 * 1024
"""What is read ahead of a slow client before the replica's socket is left to fill."""
MAX_HEAD_BYTES: Final = 64 * 1024
LEAST_LOOK_S: Final = 0.001
IDLE_S: Final = 30.0
"""How long a connection is kept for the next request; replicas keep theirs longer."""
PROBES: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""Of the kernel, in seconds and number: a replica's machine that is gone is noticed within a minute."""


def probed_socket(family: int, kind: int, protocol: int) -> socket.socket:
    """Breaks when the other machine is gone, which a silent connection would not notice; never blocks."""
    probed = socket.socket(family, kind, protocol)
    probed.setblocking(False)
    bound_reading(probed)
    probed.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in PROBES:
        probed.setsockopt(socket.IPPROTO_TCP, option, value)
    if kind == socket.SOCK_STREAM:
        probed.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return probed


class HttpUpstream:
    """One answer. `Upstream` of `driver.py`."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._connection: _Connection | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._paused = False
        self._over = False
        self._error: UpstreamFailed | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._heard_at = 0.0  # while one waits, on the loop's clock
        self._late: asyncio.TimerHandle
        self._straight: Callable[[bytes], bool] | None = None

    async def read_some(self, timeout_s: float, straight: Callable[[bytes], bool] | None = None) -> bytes:
        while not self._parts:
            if self._error is not None:
                raise self._error
            if self._over:
                return b""
            self._straight = straight
            try:
                await self.something(timeout_s)
            finally:
                self._straight = None
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        self._resume()
        return data

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.abandon(self)
            self._connection = None

    async def something(self, timeout_s: float) -> None:
        """Waits until more is known than now. Raises `TimeoutError` after so long a silence."""
        self._waiter = waiter = self._loop.create_future()
        self._heard_at = self._loop.time()
        self._late = self._loop.call_later(timeout_s, self._look, waiter, timeout_s)
        try:
            await waiter
        finally:
            self._late.cancel()
            self._waiter = None

    def check(self) -> None:
        """Raises why it broke off, if it did."""
        if self._error is not None:
            raise self._error

    # what its connection tells

    def begin(self, connection: _Connection) -> None:
        self._connection = connection

    def heads(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        self._wake()

    def feed(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)

    def fed(self) -> None:
        """After all bodies of one read: what went straight on wakes nobody."""
        if not self._parts:
            return
        if self._straight is not None:
            parts = self._parts  # with what it did not take before, so that nothing overtakes
            if self._straight(parts[0] if len(parts) == 1 else b"".join(parts)):
                parts.clear()
                self._size = 0
                self._heard_at = self._loop.time()
                return
        if self._size > READ_AHEAD_BYTES and not self._paused and self._connection is not None:
            self._paused = True
            self._connection.transport.pause_reading()
        self._wake()

    def end(self, error: UpstreamFailed | None = None) -> None:
        self._resume()
        self._over, self._error, self._connection = error is None, error, None
        self._wake()

    def _resume(self) -> None:
        if self._paused and self._connection is not None:
            self._paused = False
            self._connection.transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _look(self, waiter: asyncio.Future[None], timeout_s: float) -> None:
        """One timer for a wait, however much goes straight on meanwhile: one for each read cost more than
        the read."""
        if waiter.done():
            return
        left_s = self._heard_at + timeout_s - self._loop.time()
        if left_s <= 0:
            waiter.set_exception(TimeoutError())
        else:
            self._late = self._loop.call_later(max(LEAST_LOOK_S, left_s), self._look, waiter, timeout_s)


class HttpPool:
    """The connections of one worker to one replica."""

    def __init__(
        self, url: str, *, connect_timeout_s: float, max_connections: int, tls: ssl.SSLContext | None = None
    ) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None, url
        secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port or (443 if secure else 80)
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._prefix = parts.path.rstrip("/")
        self._fixed = f" HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        self._connect_timeout_s = connect_timeout_s
        self._max = max_connections
        self._open = 0
        self._idle: deque[tuple[_Connection, float]] = deque()
        self._queue: deque[asyncio.Future[None]] = deque()

    async def post(
        self, path: str, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> HttpUpstream:
        """The answer's beginning: its status and headers are there. Raises `UpstreamFailed`, and `ValueError`
        for a header that would end its line."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
            raise ValueError("a header holds a line end")
        start = f"POST {self._prefix}{path}{self._fixed}{lines}content-length: {len(body)}\r\n\r\n"
        head = start.encode("latin-1")
        until = asyncio.get_running_loop().time() + timeout_s
        connection = await self._connection(timeout_s)
        upstream = HttpUpstream()
        try:
            connection.start(upstream, head, body)
            while not upstream.status:
                upstream.check()
                await upstream.something(until - asyncio.get_running_loop().time())
        except TimeoutError:
            connection.abandon(upstream)
            raise UpstreamFailed("the replica did not answer in time") from None
        except BaseException:
            connection.abandon(upstream)
            raise
        return upstream

    async def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].transport.abort()

    async def _connection(self, timeout_s: float) -> _Connection:
        while True:
            self._drop_old()
            while self._idle:
                connection, _ = self._idle.pop()
                if not connection.transport.is_closing():
                    return connection
            if self._open < self._max:
                return await self._connect(timeout_s)
            await self._turn(timeout_s)

    async def _turn(self, timeout_s: float) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except TimeoutError:
            raise UpstreamFailed("no connection to the replica came free in time", sent=False) from None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given a turn that it won't take
                self._next()
            raise

    async def _connect(self, timeout_s: float) -> _Connection:
        self._open += 1
        try:
            async with asyncio.timeout(min(timeout_s, self._connect_timeout_s)):
                return await self._connected()
        except TimeoutError as error:
            self._left()
            raise UpstreamFailed("the replica takes no connection in time", sent=False) from error
        except OSError as error:  # of TLS too
            self._left()
            raise UpstreamFailed(
                f"the replica can't be reached: {type(error).__name__}", sent=False
            ) from error
        except BaseException:
            self._left()
            raise

    async def _connected(self) -> _Connection:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        error: OSError | None = None
        for family, kind, protocol, _, address in await loop.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM
        ):
            probed = probed_socket(family, kind, protocol)
            try:
                await loop.sock_connect(probed, address)
                named = self._host if self._tls is not None else None
                _, connection = await loop.create_connection(
                    lambda: _Connection(self), sock=probed, ssl=self._tls, server_hostname=named
                )
            except OSError as failed:
                probed.close()
                error = failed
            except BaseException:
                probed.close()
                raise
            else:
                return connection
        raise error or OSError("the name has no address")

    def _drop_old(self) -> None:
        oldest = asyncio.get_running_loop().time() - IDLE_S
        while self._idle and self._idle[0][1] < oldest:
            self._idle.popleft()[0].transport.abort()

    def keep(self, connection: _Connection) -> None:
        self._idle.append((connection, asyncio.get_running_loop().time()))
        self._next()

    def lost(self) -> None:
        self._left()

    def _left(self) -> None:
        self._open -= 1
        self._next()

    def _next(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class _Connection(asyncio.Protocol):
    """One connection, one answer at a time."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._upstream: HttpUpstream | None = None

    def start(self, upstream: HttpUpstream, head: bytes, body: bytes) -> None:
        self._upstream = upstream
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        upstream.begin(self)
        self.transport.writelines((head, body))

    def abandon(self, upstream: HttpUpstream) -> None:
        """Nobody reads this answer on: what still comes of it is not for the next request. Where it had come
        whole, the connection may be another request's by now, and that one's answer goes on."""
        if self._upstream is upstream:
            self._end(UpstreamFailed("the answer was abandoned"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._upstream is not None:
            reason = type(error).__name__ if error is not None else "closed"
            self._end(UpstreamFailed(f"the replica broke off: {reason}"))
        self._pool.lost()

    def data_received(self, data: bytes) -> None:
        upstream = self._upstream
        if upstream is None:  # nothing was asked
            self.transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(UpstreamFailed(f"the replica's answer can't be read: {error}"))
        upstream.fed()

    # what the parser tells

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise ValueError("its head is too long")
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._upstream is not None:
            self._upstream.heads(status, self._headers)
        self._headers = {}

    def on_body(self, body: bytes) -> None:
        if self._upstream is not None:
            self._upstream.feed(body)

    def on_message_complete(self) -> None:
        if self._upstream is None or self._parser.get_status_code() < 200:
            return
        upstream, self._upstream = self._upstream, None
        upstream.end()
        if self._parser.should_keep_alive() and not self.transport.is_closing():
            self._pool.keep(self)
        else:
            self.transport.abort()

    def _end(self, error: UpstreamFailed) -> None:
        upstream, self._upstream = self._upstream, None
        self.transport.abort()
        if upstream is not None:
            upstream.end(error)
