"""No tenant can slow another: one that floods waits behind itself, over the whole walk."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from gateway.inference.dispatch import Patience
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


async def deadline_of(worker: Worker, upstream: Upstream, http: aiohttp.ClientSession) -> int:
    upstream.seen.clear()
    assert await post(http, worker) == 200
    return int(upstream.only().headers["x-motet-deadline-ms"])


async def test_the_engine_is_told_how_long_the_first_token_may_take(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, patience=Patience(10, 4, 5, 3))
    assert 3_500 < await deadline_of(worker, upstream, http) < 4_000  # it gives up before the gateway does


@pytest.mark.parametrize(("waited_s", "left_s"), [(0, 4.0), (10, 4.0), (11, 3.0), (13.99, 0.05), (99, 0.05)])
def test_waiting_uses_up_the_deadline(waited_s: float, left_s: float) -> None:
    assert Patience(10, 4, 5, 3).first_token_s(waited_s) == pytest.approx(left_s)


async def test_an_attempt_that_the_engine_gave_up_is_a_504_and_bills_nothing(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    error: dict[str, Any] = {"message": "too late", "type": "server_error", "param": None, "code": "timeout"}
    upstream.script.refuse = (504, error)
    began = time.monotonic()
    assert await post(http, worker) == 504
    assert time.monotonic() - began < 2
    (event,) = worker.events()
    assert event.billed_prompt_tokens == event.billed_completion_tokens == 0
    await worker.settled()
