"""Requests that two parties could read differently are refused, and nothing behind them is read as another
one; over raw sockets, since no client library writes such things."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import uvicorn
from litestar.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

from gateway.http_protocol import MAX_HEADERS, MAX_PIPELINED, MAX_URL_BYTES, BoundedHttp, ConnectionLimits
from tests.gateway.inference.conftest import until
from tests.gateway.raw_http import PATIENCE_S, connected, rest, served

HOST = b"host: x\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
PIECE = 64 * 1024


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says what it was asked; `/flood` sends more than any socket takes, `/whole` that in one piece."""
    path, size, more = scope["path"], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return
        size, more = size + len(message["body"]), message["more_body"]
    names = b" ".join(name for name, _ in scope["headers"])
    headers = [(b"x-path", path.encode()), (b"x-names", names)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if path == "/whole":
        await send({"type": "http.response.body", "body": bytes(32 * 1024 * 1024), "more_body": False})
        return
    for _ in range(2_000 if path == "/flood" else 0):
        await send({"type": "http.response.body", "body": bytes(PIECE), "more_body": True})
    await send({"type": "http.response.body", "body": b"%d bytes" % size, "more_body": False})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with served(app) as (port, _):
        yield port


def post(*headers: bytes, body: bytes = b"") -> bytes:
    return b"POST / HTTP/1.1\r\n" + HOST + b"".join(line + b"\r\n" for line in headers) + b"\r\n" + body


def get(line: bytes) -> bytes:
    return b"GET / HTTP/1.1\r\n" + HOST + line + b"\r\n\r\n"


AMBIGUOUS = {
    "two lengths": post(b"content-length: 3", b"content-length: 5", body=b"abc"),
    "a length twice": post(b"content-length: 3", b"content-length: 3", body=b"abc"),
    "a list of lengths": post(b"content-length: 3, 3", body=b"abc"),
    "a signed length": post(b"content-length: +3", body=b"abc"),
    "a length in hex": post(b"content-length: 0x3", body=b"abc"),
    "no length": post(b"content-length:", body=b"abc"),
    "a length beyond numbers": post(b"content-length: 99999999999999999999", body=b"abc"),
    "both framings": post(b"content-length: 3", b"transfer-encoding: chunked", body=LAST_CHUNK),
    "both framings, swapped": post(b"transfer-encoding: chunked", b"content-length: 3", body=LAST_CHUNK),
    "another coding": post(b"transfer-encoding: identity", body=b"abc"),
    "nearly chunked": post(b"transfer-encoding: xchunked", body=LAST_CHUNK),
    "chunked, then more": post(b"transfer-encoding: chunked, identity", body=LAST_CHUNK),
    "chunked, after more": post(b"transfer-encoding: gzip, chunked", body=LAST_CHUNK),
    "codings in two lines": post(
        b"transfer-encoding: chunked", b"transfer-encoding: identity", body=LAST_CHUNK
    ),
    "a vertical tab": post(b"transfer-encoding: \x0bchunked", body=LAST_CHUNK),
    "chunked in 1.0": post(b"transfer-encoding: chunked", body=LAST_CHUNK).replace(b"1.1", b"1.0", 1),
    "a space before the colon": post(b"content-length : 3", body=b"abc"),
    "a chunk size that is none": post(b"transfer-encoding: chunked", body=b"zz\r\n"),
    "a chunk size in C": post(b"transfer-encoding: chunked", body=b"0x3\r\nabc\r\n" + LAST_CHUNK),
    "a chunk size beyond numbers": post(b"transfer-encoding: chunked", body=b"f" * 17 + b"\r\nabc"),
    "a chunk longer than it says": post(b"transfer-encoding: chunked", body=b"2\r\nabc\r\n" + LAST_CHUNK),
    "chunks with bare line ends": post(b"transfer-encoding: chunked", body=b"3\nabc\n0\n\n"),
    "a length in the trailers": post(b"transfer-encoding: chunked", body=b"0\r\ncontent-length: 5\r\n\r\n"),
    "a folded header": get(b"x-a: b\r\n c"),
    "a bare LF in a value": get(b"x-a: b\nx-b: c"),
    "a bare CR in a value": get(b"x-a: b\rx-b: c"),
    "a NUL in a value": get(b"x-a: b\x00c"),
    "a header without a name": get(b": b"),
    "a header without a colon": get(b"abc"),
    "a control in a name": get(b"x\x01a: b"),
    "bare line ends": b"GET / HTTP/1.1\nhost: x\n\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": get(HOST.strip()),
    "another version": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "no version": b"GET /\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a tunnel": b"CONNECT x:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a control in the URL": b"GET /\x01 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space in the URL": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a body that an upgrade hides": post(
        b"connection: upgrade", b"upgrade: h2c", b"content-length: 3", body=b"abc"
    ),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n",
}


@pytest.mark.parametrize("raw", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_what_could_be_read_in_two_ways_is_refused_with_all_behind_it(port: int, raw: bytes) -> None:
    async with connected(port) as (reader, writer):
        writer.write(raw + SMUGGLED)
        said = await rest(reader)
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert json.loads(body)["error"]["code"] == "invalid_http"
    assert b"\r\nconnection: close" in head
    assert b"\r\nx-content-type-options: nosniff" in head
    assert b"\r\nserver:" not in head.lower()


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_comes_after_a_body_is_no_header(port: int, at_once: bool) -> None:
    """In one packet it is there before the request is looked at."""
    raw = post(b"transfer-encoding: chunked", body=b"3\r\nabc\r\n")
    trailers = b"0\r\nauthorization: Bearer mine\r\nx-forwarded-for: 192.0.2.1\r\n\r\n"
    async with connected(port) as (reader, writer):
        writer.write(raw + trailers if at_once else raw)
        await writer.drain()
        if not at_once:
            await asyncio.sleep(0.01)
            writer.write(trailers)
        writer.write(get(b"connection: close"))
        answers = await rest(reader)
    assert answers.count(b"x-names: host transfer-encoding\r\n") == 1
    assert answers.count(b"x-names: host connection\r\n") == 1


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (post(b"content-length: 3", body=b"abc"), b"3 bytes"),
        (post(b"Transfer-Encoding: Chunked", body=b"3\r\nabc\r\n" + LAST_CHUNK), b"3 bytes"),
        (b"GET http://x/ HTTP/1.1\r\n" + HOST + b"\r\n", b"x-path: /\r\n"),
        (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", b"x-path: *\r\n"),
        (b"GET / HTTP/1.0\r\n\r\n", b"HTTP/1.1 200"),
    ],
)
async def test_what_is_unusual_and_clear_is_answered(port: int, raw: bytes, said: bytes) -> None:
    async with connected(port) as (reader, writer):
        writer.write(raw)
        async with asyncio.timeout(PATIENCE_S):
            assert said in await reader.readuntil(b"0\r\n\r\n")


async def test_an_upgrade_is_answered_as_if_it_were_not_asked_and_ends_the_connection(port: int) -> None:
    """What follows it is in no protocol that we read."""
    async with connected(port) as (reader, writer):
        writer.write(get(b"connection: upgrade\r\nupgrade: websocket") + SMUGGLED)
        said = await rest(reader)
    assert said.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in said
    assert b"/smuggled" not in said


async def test_after_a_connection_was_closed_nothing_more_is_answered(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(get(b"connection: close") + SMUGGLED)
        assert b"/smuggled" not in await rest(reader)


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"GET /" + b"a" * MAX_URL_BYTES + b" HTTP/1.1\r\n" + HOST + b"\r\n", b"414", "url_too_long"),
        (get(b"\r\n".join([b"a: b"] * MAX_HEADERS)), b"431", "headers_too_large"),
    ],
)
async def test_a_head_past_a_limit_hears_which(port: int, raw: bytes, status: bytes, code: str) -> None:
    async with connected(port) as (reader, writer):
        writer.write(raw + SMUGGLED)
        head, _, body = (await rest(reader)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert json.loads(body)["error"]["code"] == code
    assert b"x-request-id" in head


async def test_requests_wait_behind_another_in_small_number_only(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(get(b"a: b") * MAX_PIPELINED)
        for _ in range(MAX_PIPELINED):
            await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), PATIENCE_S)
        writer.write(get(b"a: b") * 10_000)
        assert (await rest(reader)).count(b"HTTP/1.1 200") <= MAX_PIPELINED + 1


async def test_nonsense_behind_a_request_is_not_answered_within_its_answer(port: int) -> None:
    async with connected(port) as (reader, writer):
        writer.write(get(b"a: b").replace(b"/", b"/flood", 1))
        await asyncio.wait_for(reader.readexactly(PIECE), PATIENCE_S)
        writer.write(b"nonsense\r\n\r\n")
        assert b"HTTP/1.1 400" not in await rest(reader)


@pytest.mark.parametrize("path", [b"/flood", b"/whole"])
async def test_an_answer_that_nobody_reads_is_dropped(monkeypatch: pytest.MonkeyPatch, path: bytes) -> None:
    """Also one that is complete, and whose connection could otherwise not even be closed."""
    monkeypatch.setattr(BoundedHttp, "limits", ConnectionLimits(write_timeout_s=0.1))
    async with served(app) as (port, server), connected(port) as (_, writer):
        writer.write(get(b"a: b").replace(b"/", path, 1))
        await until(lambda: server.server_state.connections)
        await until(lambda: not server.server_state.connections)


class Reader:
    """A transport whose other end reads so much between two looks at it."""

    def __init__(self, unread: list[int]) -> None:
        self.unread = unread
        self.aborted = False

    def get_write_buffer_size(self) -> int:
        return self.unread.pop(0) if len(self.unread) > 1 else self.unread[0]

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(
    ("unread", "dropped"),
    [
        ([90_000, 80_000, 70_000, 60_000, 0], False),
        ([1, 0], False),  # less than a timeout's worth, and all of it was read
        ([90_000, 80_000, 80_000], True),
        ([90_000, 89_990], True),  # a few bytes now and then hold a connection too
    ],
)
async def test_an_answer_is_dropped_when_nothing_is_read_of_it(
    monkeypatch: pytest.MonkeyPatch, unread: list[int], dropped: bool
) -> None:
    monkeypatch.setattr(BoundedHttp, "limits", ConnectionLimits(write_timeout_s=0.05))
    connection = BoundedHttp(uvicorn.Config(app), ServerState(), {})
    reader = Reader(unread)
    connection.transport = reader  # type: ignore[assignment]  # the part of one that is used
    connection.flow = FlowControl(connection.transport)
    connection.pause_writing()
    await until(lambda: len(unread) == 1 and (reader.aborted or not unread[0]))
    connection.resume_writing()
    assert reader.aborted == dropped
