from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial

import pytest
from litestar.enums import ScopeType
from litestar.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.direct_write import direct_write
from tests.gateway.raw_http import connected, rest, served

PIECES = [b"data: 1\n\n", b"x" * 300, b"\r\n0\r\n\r\n"]
CHUNKED: list[tuple[bytes, bytes]] = [(b"content-type", b"text/event-stream")]


class App:
    """Answers with `PIECES`; by `send` where it must, or `/send` is asked for. `took`: what it was told."""

    def __init__(self) -> None:
        self.took: list[bool] = []
        self.has_it = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == ScopeType.HTTP
        write = direct_write(scope) if scope["path"] != "/send" else None
        self.has_it = write is not None
        headers = [(b"content-length", b"%d" % sum(map(len, PIECES)))] if scope["path"] == "/length" else []
        if write is not None:
            self.took.append(write(b"too early"))
        await send({"type": "http.response.start", "status": 200, "headers": headers or CHUNKED})
        for piece in PIECES:
            took = write is not None and write(piece)
            if write is not None:
                self.took.append(took)
            if not took:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        if write is not None:
            self.took.append(write(b""))  # which would be the end of a chunked body
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        if write is not None:
            self.took.append(write(b"too late"))


async def answer(port: int, path: str, method: str = "GET") -> bytes:
    async with connected(port) as (reader, writer):
        writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        head, _, body = (await rest(reader)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        return body


async def test_either_way_the_bytes_are_the_same_and_nothing_stands_before_or_behind_them() -> None:
    app = App()
    async with served(app) as (port, _):
        direct = await answer(port, "/direct")
        assert app.took == [False, True, True, True, False, False]
        assert direct == await answer(port, "/send")
        assert not app.has_it


@pytest.mark.parametrize(("path", "method"), [("/length", "GET"), ("/direct", "HEAD")])
async def test_a_body_that_is_not_chunked_goes_the_long_way(path: str, method: str) -> None:
    app = App()
    async with served(app) as (port, _):
        body = await answer(port, path, method)
    assert body == (b"" if method == "HEAD" else b"".join(PIECES))
    assert not any(app.took)


async def test_who_does_not_read_or_is_gone_is_written_no_more() -> None:
    gone = asyncio.Event()
    refused = asyncio.Event()
    taken = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal taken
        write = direct_write(scope)
        assert write is not None
        await send({"type": "http.response.start", "status": 200, "headers": CHUNKED})
        piece = bytes(64 * 1024)
        while taken < 1_000 and write(piece):
            taken += 1
        refused.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        assert not write(b"data: 1\n\n")
        gone.set()

    async with served(app) as (port, _):
        async with connected(port) as (_, writer):
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            async with asyncio.timeout(10):
                await refused.wait()
            assert 0 < taken < 1_000
            writer.transport.abort()
        async with asyncio.timeout(10):
            await gone.wait()


async def test_an_exchange_is_forgotten_with_the_next_one_of_its_connection() -> None:
    """Without the collector, which comes rarely here."""
    exchanges: list[weakref.ref[RequestResponseCycle]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        write = direct_write(scope)
        assert isinstance(write, partial)
        exchanges.append(weakref.ref(write.args[0]))
        await send({"type": "http.response.start", "status": 200, "headers": CHUNKED})
        assert write(PIECES[0])
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        assert not write(PIECES[0])

    gc.disable()
    try:
        async with served(app) as (port, _), connected(port) as (reader, writer):
            for _ in range(3):
                writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                await reader.readuntil(b"\r\n0\r\n\r\n")
            assert [exchange() is None for exchange in exchanges] == [True, True, False]
    finally:
        gc.enable()


async def test_where_another_server_runs_the_application_there_is_none() -> None:
    scope: Scope = {"type": ScopeType.HTTP, "method": "GET"}  # type: ignore[assignment]
    assert direct_write(scope) is None
