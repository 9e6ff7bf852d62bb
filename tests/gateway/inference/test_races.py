"""Clients that leave at any moment, or don't read: each request is metered once and holds nothing."""

from __future__ import annotations

import asyncio
import json
import os
import random

import aiohttp

from tests.gateway.inference.conftest import Worker, until
from tests.gateway.inference.upstream import Upstream

BODY = json.dumps(
    {"model": "pirate", "messages": [{"role": "user", "content": "x"}], "stream": True}
).encode()


def request(body: bytes = BODY) -> bytes:
    lines = (
        "POST /v1/chat/completions HTTP/1.1",
        "host: x",
        "connection: close",
        "authorization: Bearer key",
    )
    head = "\r\n".join((*lines, f"content-length: {len(body)}", "", ""))
    return head.encode() + body


async def test_leaving_at_random_points(worker: Worker, upstream: Upstream) -> None:
    dice = random.Random(3)
    upstream.script.pause_s = 0.005
    host, port = worker.url.removeprefix("http://").split(":")

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request(BODY.replace(b"true", dice.choice([b"true", b"false"]))))
        wait = dice.random() * 0.08
        try:
            async with asyncio.timeout(wait if dice.random() < 0.7 else 5):
                while await reader.read(100):
                    pass
        except TimeoutError:
            pass
        writer.transport.abort()

    for _ in range(6):
        await asyncio.gather(*(one() for _ in range(25)))
    await worker.settled()
    events = worker.events()
    engine = {(line["request"], line["attempt"]): line for line in upstream.journal}
    ledger = {(str(event.request_id), event.attempt): event for event in events}
    assert len(ledger) == len(events)
    assert set(ledger) == set(engine)
    assert sum(e.prompt_tokens + e.completion_tokens for e in events) == sum(
        line["prompt"] + line["completion"] for line in upstream.journal
    )
    assert {e.outcome for e in events} == {"finished", "aborted"}
    assert all(e.billed_completion_tokens == e.completion_tokens for e in events)


async def test_a_client_that_does_not_read_is_left_in_the_end(worker: Worker, upstream: Upstream) -> None:
    upstream.script.words = ["x" * 500_000] * 80
    host, port = worker.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(request())
    await until(lambda: upstream.journal, within_s=20)
    assert upstream.only().generated < 80  # the replica was not drained into memory
    await worker.settled()
    (event,) = worker.events()
    assert event.outcome == "aborted"
    writer.transport.abort()


async def test_what_outlasts_the_drain_hears_a_typed_error_and_bills_nothing(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    """Whole answers and streams, begun and waiting: the server's own way to end them is a bare 500."""
    upstream.script.stall_after = 2
    whole = {"model": "pirate", "messages": [{"role": "user", "content": "x"}]}

    async def ask(body: object) -> tuple[int, bytes]:
        async with http.post(f"{worker.url}/v1/chat/completions", json=body) as answer:
            return answer.status, await answer.read()

    asking = [asyncio.create_task(ask(whole | {"stream": stream})) for stream in (False, True)]
    await until(lambda: sum(seen.generated for seen in upstream.seen.values()) == 4)
    worker.server.should_exit = True
    (unary_status, unary), (stream_status, stream) = await asyncio.gather(*asking)
    assert unary_status == 503
    assert json.loads(unary)["error"]["code"] == "gateway_stopping"
    assert stream_status == 200
    last = stream.decode().split("\n\n")[-2]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "gateway_stopping"
    assert b"[DONE]" not in stream
    await worker.settled()
    assert [event.billed_completion_tokens for event in worker.events()] == [0, 0]


async def test_a_journal_that_takes_no_line_is_a_503_whatever_the_engine_said(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    read_only = os.open(next(worker.journal_dir.glob("*.jsonl")), os.O_RDONLY)
    os.dup2(read_only, worker.walk._parts.journal._segment.fd)
    os.close(read_only)
    body = {"model": "pirate", "messages": [{"role": "user", "content": "x"}]}
    refused = {"message": "No.", "type": "server_error", "param": None, "code": "x"}
    for refusal, expected in ((None, "service_unavailable"), ((400, refused), "x")):
        upstream.script.refuse = refusal
        async with http.post(f"{worker.url}/v1/chat/completions", json=body) as answer:
            assert answer.status in (400, 503)
            assert json.loads(await answer.read())["error"]["code"] == expected
    await worker.settled()
    unwritten = worker.walk._parts.journal.unwritten
    assert [event.billed_completion_tokens for event in unwritten] == [0, 0]
