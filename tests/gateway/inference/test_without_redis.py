"""A Redis that is gone: a known key is served, streams that run end well, and what was held is given back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from redis.asyncio import Redis

from deploy.local.services import EmbeddedRedis
from gateway.limits.amounts import Tokens
from gateway.redis import connect
from tests.gateway.inference.conftest import Worker, until
from tests.gateway.inference.upstream import Upstream

CHAT = "/v1/chat/completions"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """One that may be stopped."""
    server = EmbeddedRedis(tmp_path / "redis-home")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def redis(server: EmbeddedRedis) -> AsyncIterator[Redis]:
    client = connect(server.url, timeout_s=1.0)
    yield client
    await client.aclose()


def body(**more: Any) -> bytes:
    return json.dumps({"model": "pirate", "messages": [{"role": "user", "content": "Hé"}], **more}).encode()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_known_key_is_served(
    worker: Worker, server: EmbeddedRedis, upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    worker.limit(requests_per_minute=4, tokens_per_minute=100_000, max_parallel=8)
    await asyncio.to_thread(server.stop)
    said = []
    for _ in range(3):
        async with http.post(worker.url + CHAT, data=body(stream=stream)) as answer:
            said.append(
                (answer.status, answer.headers.get("x-ratelimit-limit-requests"), await answer.read())
            )
    assert [status for status, _, _ in said] == [200, 200, 429]  # half of the limit
    assert {limit for _, limit, _ in said[:2]} == {"4"}
    refused = json.loads(said[2][2])["error"]
    assert refused["limit"]["limit_id"] == "key.requests_per_minute"
    assert len(worker.events()) == upstream.requests == 2  # both metered
    assert worker.queue.running == worker.queue.waiting == 0


async def test_a_stream_that_runs_while_redis_goes_ends_well_and_gives_back_later(
    worker: Worker, server: EmbeddedRedis, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker.limit(tokens_per_minute=100_000, max_parallel=1)
    limiter = worker.replays.parts.limiter
    upstream.script.stall_after = 2
    async with http.post(worker.url + CHAT, data=body(stream=True)) as answer:
        assert answer.status == 200
        await answer.content.readany()
        await asyncio.to_thread(server.stop)
    await until(worker.events)  # its client left: it is metered nevertheless
    await asyncio.to_thread(server.restart)
    running = asyncio.create_task(limiter.run())
    key = f"{{{worker.keys.now.tenant}}}:key:k1:leases"
    for _ in range(200):
        await asyncio.sleep(0.05)
        if await worker.redis.zcard(key) == 0:
            break
    running.cancel()
    assert await worker.redis.zcard(key) == 0
    again = await limiter.admit(worker.keys.now, "again")
    await limiter.reserve(again, Tokens(10))
    assert not again.local
    await limiter.settle(again)
