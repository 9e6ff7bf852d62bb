"""What a request asks of the router: its session, its prefix, its pool, through the real walk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from gateway.replicas.breaker import FAILURES_TO_OPEN, BreakerState
from gateway.replicas.rules import Asking, PoolRule, pool_of
from tests.gateway.inference.conftest import MakeWorker, Worker
from tests.gateway.inference.upstream import Upstream

LONG = " ".join(f"word{n}" for n in range(120))


async def send(
    http: aiohttp.ClientSession, worker: Worker, *, headers: dict[str, str] | None = None, **fields: Any
) -> int:
    body = {"model": "base", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]} | fields
    async with http.post(f"{worker.url}/v1/chat/completions", json=body, headers=headers) as answer:
        await answer.read()
        return answer.status


def first_of(worker: Worker, *upstreams: Upstream) -> Callable[[], list[int]]:
    """Requests of each since it was last asked."""
    before = [0] * len(upstreams)

    def since() -> list[int]:
        nonlocal before
        now = [each.requests for each in upstreams]
        found, before = [a - b for a, b in zip(now, before, strict=True)], now
        return found

    return since


@pytest.mark.parametrize("by", ["header", "user"])
async def test_a_session_stays_where_it_began(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession, by: str
) -> None:
    worker = await make_worker(upstream, second)
    since = first_of(worker, upstream, second)
    for session in ("a", "b"):
        named: dict[str, Any] = (
            {"headers": {"x-motet-session": session}} if by == "header" else {"user": session}
        )
        for _ in range(4):
            assert await send(http, worker, **named) == 200
        assert sorted(since()) == [0, 4]
    await worker.settled()


async def test_without_a_session_equals_take_turns(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, second)
    for _ in range(6):
        assert await send(http, worker) == 200
    assert (upstream.requests, second.requests) == (3, 3)
    await worker.settled()


async def test_a_long_prompt_finds_its_beginning_again(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, second)
    since = first_of(worker, upstream, second)
    for question in range(5):
        messages = [{"role": "system", "content": LONG}, {"role": "user", "content": f"no {question}"}]
        assert await send(http, worker, messages=messages) == 200
    assert sorted(since()) == [0, 5]
    await worker.settled()


@pytest.mark.parametrize("value", ["", "x" * 257])
async def test_a_session_that_can_not_be_is_refused(
    worker: Worker, http: aiohttp.ClientSession, value: str
) -> None:
    assert await send(http, worker, headers={"x-motet-session": value}) == 400
    await worker.settled()


async def test_a_rule_sends_requests_to_their_pool(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, second)
    own = next(one for one in worker.registry.all if one.url == second.url)
    own.pools = frozenset({"long"})
    worker.registry.note_change()
    worker.registry.rules = (PoolRule(pool="long", fallback=False, min_prompt_tokens=100),)
    since = first_of(worker, upstream, second)
    long = [{"role": "user", "content": LONG}]
    for _ in range(3):
        assert await send(http, worker, messages=long) == 200
        assert await send(http, worker) == 200
    assert since() == [3, 3]
    own.draining = True
    worker.registry.note_change()
    assert await send(http, worker, messages=long) == 503
    worker.registry.rules = (PoolRule(pool="long", min_prompt_tokens=100),)
    assert await send(http, worker, messages=long) == 200
    assert since() == [1, 0]
    await worker.settled()


def test_the_first_rule_that_fits_decides() -> None:
    tenant = uuid4()
    rules = [
        PoolRule(pool="theirs", tenant=tenant, adapter="pirate", fallback=False),
        PoolRule(pool="batch", service_class="batch"),
        PoolRule(pool="long", min_prompt_tokens=1_000),
        PoolRule(pool="reasoning", min_answer_tokens=4_000),
    ]

    def pool(prompt: int = 1, answer: int = 1, service_class: str = "standard", **more: Any) -> str:
        who = {"tenant": uuid4(), "adapter": None} | more
        return pool_of(rules, Asking(prompt, answer, service_class, **who))[0]

    assert pool() == "general"
    assert pool(tenant=tenant, adapter="pirate", service_class="batch") == "theirs"
    assert pool(tenant=tenant) == "general"
    assert pool(adapter="pirate") == "general"
    assert pool(service_class="batch", prompt=5_000) == "batch"
    assert pool(prompt=1_000) == "long"
    assert pool(prompt=999, answer=4_000) == "reasoning"


async def test_streams_that_break_off_open_the_breaker_and_bad_prompts_do_not(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    breaker = worker.registry.all[0].breaker
    upstream.script.refuse = (400, {"message": "bad", "type": "invalid_request_error"})
    for _ in range(4 * FAILURES_TO_OPEN):
        assert await send(http, worker) == 400
    assert breaker.closed
    upstream.script.refuse = None
    upstream.script.cut_after = 2
    for _ in range(FAILURES_TO_OPEN):
        assert await send(http, worker, stream=True) == 200
        await worker.settled()
    assert breaker.state is BreakerState.OPEN
    assert await send(http, worker) == 503
    await worker.settled()
