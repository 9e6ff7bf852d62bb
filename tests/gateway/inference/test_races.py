"""Clients that leave at any moment, or don't read: each request is metered once and holds nothing."""

from __future__ import annotations

import asyncio
import json
import random

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
