from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.replicas import http_client
from gateway.replicas.driver import UpstreamFailed
from gateway.replicas.http_client import HttpPool, HttpUpstream

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
SHORT = OK + b"content-length: 2\r\n\r\nhi"


class Server:
    """A server of raw bytes: what it heard, and one answer for each request."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)  # None: it closes instead
        self.heard: list[bytes] = []
        self.connections = 0
        self.cut = 0  # bytes at a time, 0: all at once
        self.then: bytes | None = None  # what follows an answer once it may go on
        self.go_on = asyncio.Event()

    @asynccontextmanager
    async def running(self, **options: int) -> AsyncIterator[HttpPool]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        pool = HttpPool(url, connect_timeout_s=2, max_connections=options.get("max_connections", 4))
        try:
            yield pool
        finally:
            self.go_on.set()
            await pool.close()
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.heard.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0)
                if answer is None:
                    break
                step = self.cut or len(answer)
                for start in range(0, len(answer), step):
                    writer.write(answer[start : start + step])
                    await writer.drain()
                    await asyncio.sleep(0)
                if self.then is not None:
                    await self.go_on.wait()
                    writer.write(self.then)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client left
        finally:
            writer.close()


async def whole(upstream: HttpUpstream) -> bytes:
    parts = []
    while part := await upstream.read_some(2):
        parts.append(part)
    return b"".join(parts)


async def ask(pool: HttpPool, body: bytes = b"{}", timeout_s: float = 2.0) -> HttpUpstream:
    return await pool.post("/v1/completions", {"x-a": "1"}, body, timeout_s)


async def test_what_is_sent_is_a_plain_request() -> None:
    server = Server(SHORT)
    async with server.running() as pool:
        assert await whole(await ask(pool, b'{"a":1}')) == b"hi"
    head, _, body = server.heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"\r\nx-a: 1\r\ncontent-length: 7" in head
    assert body == b'{"a":1}'


@pytest.mark.parametrize("cut", [0, 1, 7])
async def test_chunks_come_through_however_they_are_cut(cut: int) -> None:
    server = Server(OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n", SHORT)
    server.cut = cut
    async with server.running() as pool:
        upstream = await ask(pool)
        assert (upstream.status, upstream.headers["content-type"]) == (200, "text/plain")
        assert await whole(upstream) == b"abcdefg"
        assert await upstream.read_some(1) == b""
        await upstream.close()
        assert await whole(await ask(pool)) == b"hi"
    assert server.connections == 1


async def test_a_body_that_ends_with_its_head_leaves_the_connection_usable() -> None:
    server = Server(b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n" + SHORT)
    async with server.running() as pool:
        assert await whole(await ask(pool)) == b""
        assert await whole(await ask(pool)) == b"hi"
    assert server.connections == 1


async def test_a_server_that_closes_after_each_answer_is_connected_anew() -> None:
    server = Server(OK + b"connection: close\r\ncontent-length: 2\r\n\r\nhi", SHORT)
    async with server.running() as pool:
        assert await whole(await ask(pool)) == b"hi"
        assert await whole(await ask(pool)) == b"hi"
    assert server.connections == 2


async def test_a_connection_closed_while_idle_is_not_used_again() -> None:
    server = Server(SHORT)
    async with server.running() as pool:
        assert await whole(await ask(pool)) == b"hi"
        await asyncio.sleep(0.05)  # it has no more answers, and closes
        server.answers = [SHORT]
        assert await whole(await ask(pool)) == b"hi"
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"nonsense\r\n\r\n",
        OK + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_no_answer_is_a_failure(answer: bytes | None) -> None:
    server = Server(answer, SHORT)
    async with server.running() as pool:
        with pytest.raises(UpstreamFailed) as failed:
            await ask(pool)
        assert failed.value.sent
        server.answers = [SHORT]
        assert await whole(await ask(pool)) == b"hi"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"content-length: 9\r\n\r\nhi",
        OK + b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n",
        OK + b"\r\nhi",
    ],
)
async def test_an_answer_that_is_cut_is_never_taken_for_whole(answer: bytes) -> None:
    server = Server(answer)
    async with server.running() as pool:
        upstream = await ask(pool)
        with pytest.raises(UpstreamFailed):
            await whole(upstream)


async def test_silence_is_a_timeout_and_reading_may_go_on() -> None:
    server = Server(OK + b"content-length: 4\r\n\r\nhi")
    server.then = b"ho"
    async with server.running() as pool:
        upstream = await ask(pool)
        assert await upstream.read_some(2) == b"hi"
        with pytest.raises(TimeoutError):
            await upstream.read_some(0.02)
        server.go_on.set()
        assert await upstream.read_some(2) == b"ho"


async def test_a_replica_that_does_not_answer_is_left() -> None:
    server = Server(OK)  # a head that never ends
    server.then = b""
    async with server.running() as pool:
        with pytest.raises(UpstreamFailed, match="in time"):
            await ask(pool, timeout_s=0.05)


async def test_who_closes_early_leaves_no_rest_for_the_next() -> None:
    server = Server(OK + b"content-length: 9\r\n\r\nhi", SHORT)
    async with server.running() as pool:
        upstream = await ask(pool)
        assert await upstream.read_some(2) == b"hi"
        await upstream.close()
        server.answers = [SHORT]
        assert await whole(await ask(pool)) == b"hi"
    assert server.connections == 2


async def test_who_leaves_when_all_has_come_takes_nobody_elses_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first is cancelled in the turn of the loop in which its answer comes whole and the connection goes
    to the second."""
    server = Server(SHORT, SHORT)
    async with server.running() as pool:
        first, second = asyncio.create_task(ask(pool)), list[asyncio.Task[HttpUpstream]]()
        received = http_client._Connection.data_received

        def receive(connection: http_client._Connection, data: bytes) -> None:
            if second:
                received(connection, data)
                return
            second.append(asyncio.create_task(ask(pool)))
            received(connection, data)
            first.cancel()

        monkeypatch.setattr(http_client._Connection, "data_received", receive)
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await whole(await second[0]) == b"hi"
    assert server.connections == 1


async def test_no_more_is_read_ahead_than_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "READ_AHEAD_BYTES", 1_000)
    size = 32 * 1024 * 1024
    server = Server(OK + b"content-length: %d\r\n\r\n" % size + bytes(size))
    async with server.running() as pool:
        upstream = await ask(pool)
        await asyncio.sleep(0.1)
        first = await upstream.read_some(2)
        assert len(first) < size / 8
        assert len(first) + len(await whole(upstream)) == size


async def test_at_most_so_many_connections_and_the_rest_wait() -> None:
    server = Server(*[SHORT] * 20)
    async with server.running(max_connections=2) as pool:
        answers = await asyncio.gather(*(ask(pool) for _ in range(10)))
        assert [await whole(answer) for answer in answers] == [b"hi"] * 10
    assert server.connections <= 2


async def test_a_waiter_hears_in_time_that_no_connection_came_free() -> None:
    server = Server(OK + b"content-length: 9\r\n\r\nhi", SHORT)
    async with server.running(max_connections=1) as pool:
        held = await ask(pool)
        with pytest.raises(UpstreamFailed) as failed:
            await ask(pool, timeout_s=0.05)
        assert not failed.value.sent
        await held.close()
        server.answers = [SHORT]
        assert await whole(await ask(pool)) == b"hi"


async def test_a_header_can_not_end_its_line() -> None:
    pool = HttpPool("http://127.0.0.1:1", connect_timeout_s=1, max_connections=1)
    for value in ("a\r\nb: c", "a\nb", "a\rb"):
        with pytest.raises(ValueError, match="line end"):
            await pool.post("/", {"x": value}, b"", 1)


async def test_nobody_there_was_sent_nothing() -> None:
    for url, tls in (("http://127.0.0.1:1", None), ("https://127.0.0.1:1", ssl.create_default_context())):
        pool = HttpPool(url, connect_timeout_s=1, max_connections=1, tls=tls)
        for _ in range(2):  # a failed connection leaves its place
            with pytest.raises(UpstreamFailed) as failed:
                await ask(pool)
            assert not failed.value.sent
