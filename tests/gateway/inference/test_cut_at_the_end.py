"""A process that leaves just as answers end: what is billed is delivered, and what is cut bills nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import aiohttp

from gateway.principal import CacheMode, CachePolicy
from gateway.usage.event import UsageEvent
from tests.gateway.inference.conftest import Keeping, Worker, until
from tests.gateway.inference.upstream import Upstream

MakeWorker = Callable[..., Awaitable[Worker]]
CHAT = "/v1/chat/completions"
CACHED = CachePolicy(CacheMode.GREEDY, 1, age_s=60)


def ask(stream: bool) -> dict[str, Any]:
    messages = [{"role": "user", "content": "x"}]
    return {"model": "pirate", "messages": messages, "stream": stream, "temperature": 0}


def cut(worker: Worker) -> bool:
    """Whether the drain is over, and every request that is open was told."""
    return all(task.cancelling() for task in worker.server.server_state.tasks)


async def test_answers_that_are_being_written_down_when_the_drain_ends_still_go_out(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    """Computed ones and hits of the response cache, whole and streamed, with a disk that is slow to sync."""

    async def post(stream: bool) -> tuple[int, bytes]:
        async with http.post(worker.url + CHAT, json=ask(stream)) as answer:
            return answer.status, await answer.read()

    worker.keys.now = replace(worker.keys.now, response_cache=CACHED)
    for stream in (False, True):
        await post(stream)
    await worker.settled()
    plain = aiohttp.ClientSession(headers={"authorization": "Bearer key"})
    journal = worker.walk._parts.journal
    append, synced, waiting = journal.append, asyncio.Event(), 0

    async def slowly(event: UsageEvent) -> None:
        nonlocal waiting
        waiting += 1
        await synced.wait()
        await append(event)

    journal.append = slowly  # type: ignore[method-assign]
    async with plain:
        hits = [asyncio.create_task(post(stream)) for stream in (False, True)]
        await until(lambda: waiting == 2)
        worker.keys.now = replace(worker.keys.now, response_cache=None)
        computed = [asyncio.create_task(post(stream)) for stream in (False, True)]
        await until(lambda: waiting == 4)
        worker.server.should_exit = True
        await until(lambda: cut(worker))
        synced.set()
        said = await asyncio.gather(*hits, *computed)
    for (status, raw), stream in zip(said, (False, True) * 2, strict=True):
        assert status == 200
        assert raw.endswith(b"data: [DONE]\n\n") if stream else json.loads(raw)["choices"]
        assert b"gateway_stopping" not in raw
    await worker.settled()
    assert [(e.outcome, e.billed_completion_tokens) for e in worker.events()] == [("finished", 4)] * 6


async def test_a_hit_that_the_drain_cuts_says_so_and_bills_nothing(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    """It waits behind an earlier answer of its connection, which its client is slow to read."""
    keeping = Keeping(answer_bytes=8 * 1024 * 1024, tenant_bytes=32 * 1024 * 1024)
    worker = await make_worker(upstream, keeping=keeping)
    worker.keys.now = replace(worker.keys.now, response_cache=CACHED)
    upstream.script.words = ["x" * 500_000] * 8
    for stream in (False, True):
        async with http.post(worker.url + CHAT, json=ask(stream)) as answer:
            await answer.read()
    await worker.settled()
    await until(lambda: not worker.replays._flights._open)

    host, port = worker.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(request(False) + request(True))
    await until(lambda: len(hits(worker)) == 1 and worker.server.server_state.tasks)
    worker.server.should_exit = True
    await until(lambda: cut(worker))
    said = b""
    while chunk := await reader.read(1 << 20):
        said += chunk
    writer.close()
    assert said.count(b"HTTP/1.1 ") == 2
    assert b'"code":"gateway_stopping"' in said
    await worker.settled()
    assert [(each.outcome, each.billed_completion_tokens) for each in hits(worker)] == [
        ("finished", 8),
        ("failed", 0),
    ]


def request(stream: bool) -> bytes:
    body = json.dumps(ask(stream)).encode()
    about = "host: x\r\nauthorization: Bearer key"
    head = f"POST {CHAT} HTTP/1.1\r\n{about}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def hits(worker: Worker) -> list[UsageEvent]:
    return [event for event in worker.events() if event.source == "cache"]
