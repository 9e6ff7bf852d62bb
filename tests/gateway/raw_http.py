"""A server with the gateway's protocol, and clients that write what they like."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from litestar.types import ASGIApp

from gateway.http_protocol import BoundedHttp
from tests.gateway.inference.conftest import until

PATIENCE_S = 5.0
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[tuple[int, uvicorn.Server]]:
    """Its port, and the server."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=BoundedHttp,
        lifespan="off",
        log_level="critical",
        timeout_keep_alive=60,
        server_header=False,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # the test's process keeps its own
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started)
    yield int(listener.getsockname()[1]), server
    server.should_exit = True
    await serving
    listener.close()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Stream]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server closes the connection, which must be soon."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await reader.read()
    except ConnectionError:
        return b""
