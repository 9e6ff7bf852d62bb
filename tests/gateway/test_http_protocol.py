"""What a stranger may hold of a worker: heads, trailers, idle connections and unread bodies all end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from litestar.enums import ScopeType
from litestar.types import Receive, Scope, Send

from gateway import http_protocol
from gateway.http_protocol import BoundedHttp, ConnectionLimits
from tests.gateway.raw_http import PATIENCE_S, Stream, connected, rest, served

SOON_S = 0.15  # for what takes 15 s and more in production

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says how long the body was; `/refuse` answers without reading it, `/slow` takes its time."""
    assert scope["type"] == ScopeType.HTTP
    size, more = 0, scope["path"] != "/refuse"
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        size, more = size + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/slow":
        await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
        await asyncio.sleep(4 * SOON_S)
    await send({"type": "http.response.body", "body": b"%d bytes" % size, "more_body": False})


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", SOON_S)
    monkeypatch.setattr(http_protocol, "LINGER_S", SOON_S)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with served(app) as (port, _):
        yield port


async def flood(stream: Stream, piece: bytes, most_bytes: int) -> tuple[int, bytes]:
    """Sends until the server won't take any more: bytes sent, and what it said."""
    reader, writer = stream
    sent = 0
    try:
        async with asyncio.timeout(PATIENCE_S):
            while sent < most_bytes and not reader.at_eof():
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
                await asyncio.sleep(0)
    except ConnectionError:
        pass
    return sent, await rest(reader)


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-long: ", b"a" * 65_536),
        (b"GET / HTTP/1.1\r\nhost: x\r\n", b"x-many: a\r\n" * 6_000),
        (b"GET /", b"a" * 65_536),
        (
            b"POST /refuse HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
            b"x-trailer: a\r\n" * 5_000,
        ),
        (b"POST /refuse HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1;", b"a" * 65_536),
    ],
    ids=["value", "number", "path", "trailers", "chunk extension"],
)
async def test_a_head_that_never_ends_is_cut(port: int, begin: bytes, piece: bytes) -> None:
    async with connected(port) as stream:
        stream[1].write(begin)
        sent, said = await flood(stream, piece, most_bytes=64 * 1024 * 1024)
        assert sent < 16 * 1024 * 1024  # what lay in socket buffers, at most
        assert said == b"" or said.startswith((b"HTTP/1.1 431", b"HTTP/1.1 200", b"HTTP/1.1 400"))


async def test_a_head_over_the_limit_hears_why(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n")
        for _ in range(5):
            writer.write(b"x-long: " + b"a" * 16_000 + b"\r\n")
            await asyncio.sleep(0.01)
        said = await rest(reader)
        assert said.startswith(b"HTTP/1.1 431")
        assert b'"code":"headers_too_large"' in said


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\nhost:", GET + b"GET / HT"])
async def test_who_says_nothing_more_is_let_go(port: int, begin: bytes) -> None:
    async with connected(port) as (reader, writer):
        writer.write(begin)
        said = await rest(reader)
        assert said.count(b"HTTP/1.1 200") == begin.count(GET)


@pytest.mark.usefixtures("soon")
async def test_a_head_that_drips_is_let_go(port: int) -> None:
    async with connected(port) as (reader, writer):
        closed = asyncio.create_task(rest(reader))
        writer.write(b"GET / HTTP/1.1\r\nhost: ")
        for _ in range(100):
            if closed.done():
                break
            writer.write(b"a")
            await asyncio.sleep(SOON_S / 4)
        assert await closed == b""


@pytest.mark.usefixtures("soon")
async def test_the_rest_of_an_answered_body_is_waited_for_only_so_long(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(b"POST /refuse HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\nsome")
        assert (await rest(reader)).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("soon")
async def test_an_answer_under_way_is_never_cut(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(GET.replace(b"/", b"/slow", 1) + b"GET / HT")
        assert (await rest(reader)).endswith(b"7\r\n0 bytes\r\n0\r\n\r\n")


@pytest.mark.usefixtures("soon")
async def test_what_is_well_formed_goes_through_however_long(port: int) -> None:
    async with connected(port) as (reader, writer):
        for size in (0, 3_000_000):
            writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size + b"a" * size)
            answer = await reader.readuntil(b"0\r\n\r\n")
            assert b"%d bytes" % size in answer
            await asyncio.sleep(2 * SOON_S)  # idle between two requests: the keep-alive's own time
        writer.write(GET * 3)
        for _ in range(3):
            assert b"0 bytes" in await reader.readuntil(b"0\r\n\r\n")


async def test_past_the_limit_connections_are_refused_and_the_others_go_on(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedHttp, "limits", ConnectionLimits(connections=2))
    async with connected(port) as first, connected(port), connected(port) as third:
        assert await rest(third[0]) == b""
        first[1].write(GET)
        assert b"0 bytes" in await first[0].readuntil(b"0\r\n\r\n")
