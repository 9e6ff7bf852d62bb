from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from litestar.enums import ScopeType
from litestar.types import Receive, Scope, Send
from uvicorn.server import ServerState

from gateway.http_protocol import BoundedHttp


class Wire(asyncio.Transport):
    """Each write by itself, as it would leave."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """`/whole`, `/chunked`, `/empty` (204), `/silent` (no body ever comes), `/broken` (it fails there)."""
    assert scope["type"] == ScopeType.HTTP
    while (await receive())["more_body"]:  # type: ignore[typeddict-item]  # the request is whole here
        pass
    path = scope["path"]
    headers = [(b"content-length", b"6")] if path == "/whole" else []
    await send(
        {"type": "http.response.start", "status": 204 if path == "/empty" else 200, "headers": headers}
    )
    if path == "/broken":
        raise RuntimeError("it fails")
    if path == "/silent":
        await asyncio.Event().wait()
    if path == "/chunked":
        await send({"type": "http.response.body", "body": b"first ", "more_body": True})
    await send(
        {"type": "http.response.body", "body": b"" if path == "/empty" else b"second", "more_body": False}
    )


async def answered(request: bytes, *more: bytes) -> Wire:
    wire = Wire()
    config = uvicorn.Config(app, http=BoundedHttp, lifespan="off", log_level="critical", server_header=False)
    config.load()
    connection = BoundedHttp(config, ServerState(), {})
    connection.connection_made(wire)
    for data in (request, *more):
        connection.data_received(data)
        for _ in range(10):
            await asyncio.sleep(0)
    for task in connection.tasks:
        task.cancel()
    connection.connection_lost(None)
    return wire


def ask(path: str, method: str = "GET", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: x\r\n{more}\r\n".encode()


@pytest.mark.parametrize(
    ("path", "bodies"),
    [
        ("/whole", [b"second"]),
        ("/chunked", [b"6\r\nfirst \r\n", b"6\r\nsecond\r\n0\r\n\r\n"]),
        ("/empty", [b""]),
    ],
)
async def test_a_head_goes_out_with_the_first_of_its_body(path: str, bodies: list[bytes]) -> None:
    wire = await answered(ask(path))
    head, _, first = wire.writes[0].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 20")
    assert [first, *wire.writes[1:]] == bodies


async def test_the_answer_to_head_is_its_head() -> None:
    wire = await answered(ask("/whole", "HEAD"))
    assert b"".join(wire.writes).endswith(b"content-length: 6\r\n\r\n")


async def test_a_head_alone_waits_for_its_body_and_goes_out_when_none_comes() -> None:
    assert (await answered(ask("/silent"))).writes == []
    broken = await answered(ask("/broken"))
    assert broken.closed
    assert len(broken.writes) == 1
    assert broken.writes[0].endswith(b"transfer-encoding: chunked\r\n\r\n")


async def test_leave_to_send_a_body_waits_for_nothing() -> None:
    asked = ask("/whole", "POST", "content-length: 2\r\nexpect: 100-continue\r\n")
    wire = await answered(asked, b"{}")
    assert wire.writes[0] == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert wire.writes[1].startswith(b"HTTP/1.1 200 OK\r\n")
    assert wire.writes[1].endswith(b"\r\n\r\nsecond")
    assert len(wire.writes) == 2


async def test_each_answer_of_a_connection_has_its_own_head() -> None:
    wire = await answered(ask("/whole") + ask("/chunked"), ask("/whole"))
    assert [write.startswith(b"HTTP/1.1 200") for write in wire.writes] == [True, True, False, True]
