"""No tenant can slow another: one that floods waits behind itself, over the whole walk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

import aiohttp
import pytest

from gateway.principal import TenantId
from tests.gateway.inference.conftest import Worker, until
from tests.gateway.inference.upstream import Upstream

MakeWorker = Callable[..., Awaitable[Worker]]
PLACES = 2
FLOOD = 24


def body(stream: bool) -> bytes:
    return json.dumps(
        {"model": "pirate", "messages": [{"role": "user", "content": "Hé"}], "stream": stream}
    ).encode()


async def post(http: aiohttp.ClientSession, worker: Worker, stream: bool = False) -> int:
    async with http.post(worker.url + "/v1/chat/completions", data=body(stream)) as answer:
        await answer.read()
        return answer.status


@pytest.mark.parametrize("stream", [True, False])
async def test_a_quiet_tenant_waits_for_one_place_not_for_the_flood(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    worker = await make_worker(upstream, capacity=PLACES)
    upstream.script.pause_s = 0.02
    loud = worker.keys.now
    flood = [asyncio.create_task(post(http, worker, stream)) for _ in range(FLOOD)]
    await until(lambda: worker.queue.waiting == FLOOD - PLACES)
    worker.keys.now = replace(loud, tenant=TenantId(uuid4()), tenant_name="globex")
    finished_before = sum(task.done() for task in flood)
    assert await post(http, worker, stream) == 200
    overtaken = sum(task.done() for task in flood) - finished_before
    assert overtaken <= 2 * PLACES  # those that ran when it came, and those that ran beside it
    assert await asyncio.gather(*flood) == [200] * FLOOD
    await worker.settled()
    worker.keys.now = loud
    await worker.settled()
