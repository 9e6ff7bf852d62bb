"""Streams as the wire has them: comments while nothing comes, headers that keep proxies from holding anything
back, and nothing that is not said on purpose, in either direction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from gateway.envelope import API_POLICY, NO_STORE, SECURITY_HEADERS
from gateway.inference.client import ClientPatience
from tests.gateway.inference.conftest import Worker, until
from tests.gateway.inference.upstream import Upstream

MakeWorker = Callable[..., Awaitable[Worker]]
CHAT = "/v1/chat/completions"
COMMENT = b": ka\n\n"
OURS = {
    *(f"x-motet-{name}" for name in ("adapter", "version", "digest", "default-max-tokens", "cache")),
    *(
        f"x-ratelimit-{what}-{of}"
        for what in ("limit", "remaining", "reset")
        for of in ("requests", "tokens")
    ),
    *(name.decode() for name, _ in (*SECURITY_HEADERS, API_POLICY, NO_STORE)),
    "content-type",
    "date",
    "x-request-id",
}
"""All that an answer may say of itself."""


def ask(stream: bool = True, **more: Any) -> dict[str, Any]:
    return {"model": "pirate", "messages": [{"role": "user", "content": "Hi"}], "stream": stream, **more}


@pytest.fixture
async def hasty(make_worker: MakeWorker, upstream: Upstream) -> Worker:
    """One request at a time, and a comment after a moment of silence."""
    return await make_worker(upstream, capacity=1, client=ClientPatience(keep_alive_s=0.02))


async def read_until(answer: aiohttp.ClientResponse, mark: bytes) -> bytes:
    found = b""
    async with asyncio.timeout(5):
        while mark not in found:
            piece = await answer.content.readany()
            assert piece, found
            found += piece
    return found


async def test_who_waits_in_the_queue_hears_comments(
    hasty: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.hold = asyncio.Event()
    async with http.post(hasty.url + CHAT, json=ask()) as running:
        await read_until(running, b"data: ")
        async with http.post(hasty.url + CHAT, json=ask()) as waiting:
            assert waiting.status == 200
            heard = await read_until(waiting, COMMENT * 2)
            assert heard.replace(COMMENT, b"") == b""
            assert upstream.requests == 1
            upstream.script.hold.set()
            heard += await waiting.read()
        await running.read()
    assert heard.endswith(b"data: [DONE]\n\n")
    await hasty.settled()


async def test_what_goes_wrong_after_a_comment_is_an_error_frame(
    hasty: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    """Its status is said already, whatever the error's would have been."""
    upstream.script.hold = asyncio.Event()
    async with http.post(hasty.url + CHAT, json=ask()) as running:
        await read_until(running, b"data: ")
        async with http.post(hasty.url + CHAT, json=ask()) as waiting:
            heard = await read_until(waiting, COMMENT)
            upstream.script.refuse = (400, {"message": "No.", "type": "invalid_request_error", "code": "no"})
            upstream.script.hold.set()
            heard += await waiting.read()
        await running.read()
    assert waiting.status == 200
    frames = [frame for frame in heard.split(b"\n\n") if frame and not frame.startswith(b":")]
    assert [json.loads(frame.removeprefix(b"data: "))["error"]["code"] for frame in frames] == ["no"]
    await hasty.settled()


async def test_an_adapter_that_loads_for_long_keeps_its_client(
    hasty: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    """The replica takes the request and says nothing: comments come in between."""
    upstream.script.pause_s = 0.06
    async with http.post(hasty.url + CHAT, json=ask()) as answer:
        heard = await answer.read()
    events = [frame for frame in heard.split(b"\n\n") if frame]
    assert COMMENT.strip() in events[1:-1]
    receipt = b": motet-receipt "
    assert all(frame == COMMENT.strip() or frame.startswith((b"data: {", receipt)) for frame in events[:-1])
    assert not any(line.startswith((b"id:", b"event:", b"retry:")) for line in heard.splitlines())
    assert b"data: \n" not in heard
    assert b"data:\n" not in heard


async def test_no_proxy_is_given_a_reason_to_hold_a_stream_back(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    async with http.post(
        worker.url + CHAT, json=ask(), headers={"accept-encoding": "gzip, br, zstd"}
    ) as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["cache-control"] == "no-cache"
        assert "content-encoding" not in answer.headers
        assert (await answer.read()).startswith(b"data: {")
    assert upstream.only().headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("stream", [True, False])
async def test_of_a_replicas_headers_only_the_type_of_a_whole_answer_is_passed_on(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    upstream.script.headers = {
        "server": "engine/1.0",
        "set-cookie": "a=b",
        "x-internal": "secret",
        "access-control-allow-origin": "*",
        "cache-control": "public, max-age=3600",
        "x-motet-salt": "salt",
    }
    async with http.post(worker.url + CHAT, json=ask(stream)) as answer:
        names = {name.lower() for name in answer.headers}
        await answer.read()
    framing = {"x-motet-queue-ms"} | (
        {"transfer-encoding", "x-accel-buffering"}
        if stream
        else {"content-length", "openai-processing-ms", "x-motet-receipt", "x-motet-tier", "x-motet-load-ms"}
    )
    assert names == OURS | framing
    assert answer.headers["cache-control"] == ("no-cache" if stream else "no-store")


async def test_of_a_clients_headers_none_is_passed_on(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    """Not even those that we speak with replicas in."""
    claimed = {
        "x-motet-tenant": "other",
        "x-motet-salt": "other",
        "x-motet-artefact": "b" * 64,
        "x-motet-class": "interactive",
        "x-motet-purpose": "probe",
        "x-motet-request": "00000000-0000-7000-8000-000000000000",
        "x-forwarded-for": "127.0.0.1",
        "cookie": "a=b",
        "accept-encoding": "gzip",
    }
    async with http.post(worker.url + CHAT, json=ask(), headers=claimed) as answer:
        await answer.read()
    seen = upstream.only()
    names = {name.lower() for name in seen.headers}
    ours = ("request", "attempt", "tenant", "key", "salt", "class", "deadline-ms", "max-tokens", "purpose")
    of_adapter = ("artefact", "owner", "version")
    http_ones = {"host", "accept-encoding", "authorization", "content-type", "content-length"}
    assert names == {f"x-motet-{name}" for name in (*ours, *of_adapter)} | http_ones
    assert not set(claimed.values()) & {seen.headers[name] for name in seen.headers}
    assert seen.headers["x-motet-tenant"] == str(worker.keys.now.tenant)
    assert seen.headers["Authorization"] != "Bearer key"


async def test_a_body_in_chunks_is_refused_at_the_cap_and_not_after_it(worker: Worker) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(worker.url.rsplit(":", 1)[1]))
    writer.write(
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer key\r\n"
        "transfer-encoding: chunked\r\n\r\n".encode()
    )
    sent = 0

    async def flood() -> None:
        nonlocal sent
        piece = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        while True:
            writer.write(piece)
            await writer.drain()
            sent += 0x10000

    flooding = asyncio.create_task(flood())
    try:
        said = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    finally:
        flooding.cancel()
        writer.close()
    assert said.startswith(b"HTTP/1.1 413")
    await asyncio.wait({flooding})
    await until(lambda: not worker.server.server_state.tasks)
    await worker.settled()
