"""What a stranger without a token may hold of the server: heads and trailers that never end are cut."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn
from litestar.types import Receive, Scope, Send

from engine.server import asgi, http_protocol
from engine.server.http_protocol import BoundedHttp

LIMIT_S = 5.0
POST = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says how long the body was."""
    body = await asgi.read_body(receive, 64 * 1024 * 1024, LIMIT_S)
    await asgi.respond(send, 200, b"%d bytes" % len(body))


@pytest.fixture
async def port() -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, http=BoundedHttp, lifespan="off", log_level="critical"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        for _ in range(1_000):
            if not server.started:
                await asyncio.sleep(0.005)
        assert server.started
        yield int(listener.getsockname()[1])
        server.should_exit = True
        await serving


async def flood(port: int, begin: bytes, piece: bytes, most_bytes: int) -> int:
    """Sends until the connection breaks: how much was taken."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begin)
    taken = 0
    try:
        async with asyncio.timeout(LIMIT_S):
            while taken < most_bytes:
                writer.write(piece)
                await writer.drain()
                taken += len(piece)
    except ConnectionError:
        return taken
    finally:
        writer.transport.abort()
    return taken


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /", b"a" * 65_536),
        (b"GET / HTTP/1.1\r\nx-long: ", b"a" * 65_536),
        (b"GET / HTTP/1.1\r\n", b"x-many: a\r\n" * 6_000),
        (POST + b"0\r\n", b"x-trailer: a\r\n" * 5_000),
        (POST + b"1;", b"a" * 65_536),
    ],
    ids=["path", "value", "number", "trailers", "chunk extension"],
)
async def test_a_head_that_never_ends_is_cut(port: int, begin: bytes, piece: bytes) -> None:
    taken = await flood(port, begin, piece, most_bytes=64 * 1024 * 1024)
    assert taken < 16 * 1024 * 1024  # what lay in socket buffers, at most


async def test_a_body_is_no_head(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(POST)
    for _ in range(40):
        writer.write(b"10000\r\n" + b"a" * 65_536 + b"\r\n")
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    assert (await reader.readuntil(b" bytes")).endswith(b"2621440 bytes")
    writer.close()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nhost:"])
async def test_who_says_nothing_more_is_cut(port: int, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    assert await is_cut(reader)
    writer.transport.abort()


async def test_a_blank_line_keeps_no_connection(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await reader.readuntil(b" bytes")
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.05)
    writer.write(b"\r\n")
    assert await is_cut(reader)
    writer.transport.abort()


async def is_cut(reader: asyncio.StreamReader) -> bool:
    try:
        return await asyncio.wait_for(reader.read(), LIMIT_S) == b""
    except ConnectionError:
        return True
