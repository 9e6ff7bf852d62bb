"""Which attempts are repeated: before the first byte, on another replica, within the budget."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from gateway.replicas.retry_budget import RetryBudget
from tests.gateway.inference.conftest import Worker
from tests.gateway.inference.upstream import Upstream

MakeWorker = Callable[..., Awaitable[Worker]]


async def status_of(http: aiohttp.ClientSession, worker: Worker) -> int:
    body: dict[str, Any] = {"model": "pirate", "messages": [{"role": "user", "content": "x"}]}
    async with http.post(worker.url + "/v1/chat/completions", json=body) as answer:
        await answer.read()
        return answer.status


async def test_no_replica_is_asked_twice_in_a_row(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, second)
    upstream.script.cut_before = second.script.cut_before = True
    assert await status_of(http, worker) == 503
    assert sorted([upstream.requests, second.requests]) == [1, 2]
    assert all(event.billed_prompt_tokens == 0 for event in worker.events())
    await worker.settled()


async def test_where_no_other_is_up_nothing_is_repeated(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, second)
    second.ready = False
    await worker.registry.poll_once()
    upstream.script.fail_first = 1
    assert [await status_of(http, worker) for _ in range(2)] == [503, 200]
    await worker.settled()


async def test_when_the_budget_is_spent_nothing_is_repeated(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, second)
    worker.walk._parts.dispatcher._budget = RetryBudget(share=0.0, left=1.0)
    for script in (upstream.script, second.script):
        script.fail_first = 2
    assert [await status_of(http, worker) for _ in range(4)] == [503, 503, 503, 200]
    assert upstream.requests + second.requests == 5
    await worker.settled()
