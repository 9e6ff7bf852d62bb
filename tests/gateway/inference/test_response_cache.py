"""The response cache over a real socket: what is computed once, what it costs, and what nobody else can
see."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

import aiohttp
import pytest

from gateway.inference import flights, response_cache
from gateway.limits.amounts import Tokens
from gateway.principal import CacheMode, CachePolicy, TenantId
from gateway.redis import PipedRedis
from tests.gateway.inference.conftest import Keeping, Worker, cut_receipt, until
from tests.gateway.inference.upstream import Upstream

MakeWorker = Callable[..., Awaitable[Worker]]
CHAT = "/v1/chat/completions"


def ask(stream: bool = False, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hé"}]
    return {"model": "pirate", "messages": messages, "stream": stream, "temperature": 0, **more}


async def post(http: aiohttp.ClientSession, worker: Worker, body: Any) -> tuple[int, str, bytes]:
    """Status, what the cache says, and the answer."""
    async with http.post(worker.url + CHAT, json=body) as answer:
        return answer.status, answer.headers.get("x-motet-cache", ""), await answer.read()


def turn_on(worker: Worker, mode: CacheMode = CacheMode.GREEDY, epoch: int = 1) -> None:
    worker.keys.now = replace(worker.keys.now, response_cache=CachePolicy(mode, epoch, age_s=60))


async def landed(worker: Worker) -> None:
    """Also what is kept after the answer went out."""
    await worker.settled()
    assert not worker.replays._flights._open


@pytest.fixture
def cached(worker: Worker) -> Worker:
    turn_on(worker)
    return worker


async def test_it_is_off_unless_a_tenant_has_it(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    for _ in range(2):
        assert (await post(http, worker, ask()))[:2] == (200, "off")
    assert upstream.requests == 2
    assert await worker.redis.keys(f"{{{worker.keys.now.tenant}}}:response*") == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("chunk_bytes", [None, 7])
async def test_the_second_time_nothing_is_computed_and_the_bytes_are_the_same(
    cached: Worker,
    upstream: Upstream,
    http: aiohttp.ClientSession,
    stream: bool,
    chunk_bytes: int | None,
) -> None:
    upstream.script.chunk_bytes = chunk_bytes
    first = await post(http, cached, ask(stream))
    second = await post(http, cached, ask(stream))
    assert (first[:2], second[:2]) == ((200, "miss"), (200, "hit"))
    assert cut_receipt(first[2])[0] == cut_receipt(second[2])[0]
    assert upstream.requests == 1
    await landed(cached)


async def test_a_hit_has_a_row_of_its_own_before_its_client_sees_the_end(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    for stream in (False, True):
        await post(http, cached, ask(stream))
        async with http.post(cached.url + CHAT, json=ask(stream), headers={"x-request-id": "mine"}) as answer:
            own, first = answer.headers["x-request-id"], answer.headers["x-motet-original-request"]
            assert (answer.headers["x-motet-adapter"], answer.headers["x-motet-version"]) == ("pirate", "3")
            assert answer.headers["x-ratelimit-limit-requests"] == "100000"
            await answer.read()
        rows = {str(event.request_id): event for event in cached.events()}
        hit, computed = rows[own], rows[first]
        assert (hit.source, computed.source) == ("cache", "engine")
        assert (hit.outcome, hit.attempt, hit.replica) == ("finished", 1, None)
        for count in ("prompt_tokens", "completion_tokens", "cached_tokens"):
            assert getattr(hit, count) == getattr(hit, f"billed_{count}") == getattr(computed, count)
        assert (hit.artefact, hit.key_id, hit.client_request_id) == (computed.artefact, "k1", "mine")
    await landed(cached)


async def test_a_hit_is_a_request_and_takes_no_tokens(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker.limit(requests_per_minute=3, max_parallel=1, tokens_per_minute=1_100)
    turn_on(worker)
    assert [(await post(http, worker, ask()))[1] for _ in range(3)] == ["miss", "hit", "hit"]
    assert (await post(http, worker, ask()))[0] == 429
    assert upstream.requests == 1
    await landed(worker)


async def test_shapes_and_settings_don_t_answer_for_each_other(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    for body in (
        ask(),
        ask(stream=True),
        ask(stream=True, stream_options={"include_usage": True}),
        ask(n=2),
        ask(max_tokens=5),
        ask(model="base"),
    ):
        assert (await post(http, cached, body))[1] == "miss"
    assert (await post(http, cached, ask(user="somebody", metadata={"a": "b"})))[1] == "hit"
    assert upstream.requests == 6
    await landed(cached)


async def test_what_is_drawn_is_not_kept_but_by_a_seed_that_counts(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    turn_on(worker)
    assert [(await post(http, worker, ask(temperature=1, seed=5)))[1] for _ in range(2)] == ["off", "off"]
    turn_on(worker, CacheMode.SEEDED)
    assert [(await post(http, worker, ask(temperature=1, seed=5)))[1] for _ in range(2)] == ["miss", "hit"]
    assert (await post(http, worker, ask(temperature=1)))[1] == "off"
    await landed(worker)


async def test_another_tenant_sees_nothing_and_takes_the_same_steps(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    """A miss is the same commands with the same lengths, whether somebody else has the answer or nobody."""
    said: list[tuple[Any, ...]] = []
    pipe: Any = cast(PipedRedis, cached.redis).pipe
    plain = pipe.call

    async def noted(*args: Any) -> Any:
        said.append((args[0], *(len(str(arg)) for arg in args[1:])))
        return await plain(*args)

    async def missed(body: Any) -> list[tuple[Any, ...]]:
        cached.keys.now = replace(cached.keys.now, tenant=TenantId(uuid4()))
        said.clear()
        assert (await post(http, cached, body))[1] == "miss"
        await landed(cached)
        return [step for step in said if step[0] in ("GET", "MGET", "EXISTS")]

    await post(http, cached, ask(max_tokens=100))
    await landed(cached)
    pipe.call = noted  # watched, not changed
    known_to_another = await missed(ask(max_tokens=100))
    known_to_nobody = await missed(ask(max_tokens=101))
    assert known_to_another == known_to_nobody
    assert len(known_to_nobody) == 1
    assert upstream.requests == 3


async def test_many_who_ask_at_once_are_one_computation(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.hold = asyncio.Event()
    asking = [asyncio.create_task(post(http, cached, ask(stream=True))) for _ in range(12)]
    await until(lambda: cached.replays._flights.waiting == 11)
    upstream.script.hold.set()
    answers = await asyncio.gather(*asking)
    told = [cut_receipt(answer) for _, _, answer in answers]
    assert len({answer for answer, _ in told}) == 1
    assert len({receipt for _, receipt in told}) == 12  # each is metered, so each has its own
    assert sorted(how for _, how, _ in answers) == ["hit"] * 11 + ["miss"]
    assert upstream.requests == 1
    assert sorted(event.source for event in cached.events()) == ["cache"] * 11 + ["engine"]
    await landed(cached)


async def test_when_the_one_that_computes_leaves_another_takes_the_lead(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.hold = asyncio.Event()
    first = asyncio.create_task(post(http, cached, ask()))
    await until(lambda: upstream.requests == 1)
    others = [asyncio.create_task(post(http, cached, ask())) for _ in range(3)]
    await until(lambda: cached.replays._flights.waiting == 3)
    first.cancel()
    await until(lambda: upstream.requests == 2)
    upstream.script.hold.set()
    answers = await asyncio.gather(*others)
    assert sorted(how for _, how, _ in answers) == ["hit", "hit", "miss"]
    assert upstream.requests == 2
    await landed(cached)


async def test_one_that_waits_may_leave(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.hold = asyncio.Event()
    first = asyncio.create_task(post(http, cached, ask()))
    await until(lambda: upstream.requests == 1)
    second = asyncio.create_task(post(http, cached, ask()))
    await until(lambda: cached.replays._flights.waiting == 1)
    second.cancel()
    await until(lambda: cached.replays._flights.waiting == 0)
    upstream.script.hold.set()
    assert (await first)[0] == 200
    await landed(cached)
    assert len(cached.events()) == 1


async def test_a_wait_has_its_time(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, keeping=Keeping(wait_s=0.05))
    turn_on(worker)
    upstream.script.hold = asyncio.Event()
    asking = [asyncio.create_task(post(http, worker, ask())) for _ in range(2)]
    await until(lambda: upstream.requests == 2)
    upstream.script.hold.set()
    assert [status for status, _, _ in await asyncio.gather(*asking)] == [200, 200]
    await landed(worker)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_failed_is_not_kept(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    upstream.script.cut_after = 2
    await post(http, cached, ask(stream))
    upstream.script.cut_after, upstream.script.fail_after = None, 2
    await post(http, cached, ask(stream=True))
    upstream.script.fail_after = None
    refused = {"message": "No.", "type": "invalid_request_error", "param": "stop", "code": "x"}
    upstream.script.refuse = (400, refused)
    assert (await post(http, cached, ask(stream)))[0] == 400
    upstream.script.refuse = None
    await landed(cached)
    assert [(await post(http, cached, ask(stream)))[1] for _ in range(2)] == ["miss", "hit"]
    await landed(cached)


async def test_what_its_client_cut_is_not_kept(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.stall_after = 3
    async with http.post(cached.url + CHAT, json=ask(stream=True)) as answer:
        await answer.content.readany()
        answer.close()
    await landed(cached)
    upstream.script.stall_after = None
    assert (await post(http, cached, ask(stream=True)))[1] == "miss"
    await landed(cached)


async def test_a_hit_that_is_cut_is_billed_as_it_was_sent(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.words = ["x" * 20_000] * 3
    await post(http, cached, ask(stream=True))
    await landed(cached)
    async with http.post(cached.url + CHAT, json=ask(stream=True)) as answer:
        await answer.content.read(10)
        answer.close()
    await landed(cached)
    hit = next(event for event in cached.events() if event.source == "cache")
    assert hit.outcome in ("finished", "aborted")
    assert hit.billed_completion_tokens == 3


async def test_too_large_an_answer_goes_by(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, keeping=Keeping(answer_bytes=300))
    turn_on(worker)
    upstream.script.words = ["x" * 100] * 5
    assert [(await post(http, worker, ask(stream=True)))[1] for _ in range(2)] == ["miss", "miss"]
    await landed(worker)


async def test_replicas_that_differ_share_no_answers(
    make_worker: MakeWorker, upstream: Upstream, second: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, second)
    turn_on(worker)
    assert (await post(http, worker, ask()))[1] == "miss"
    second.base_digest = "e" * 64
    await worker.registry.poll_once()
    assert (await post(http, worker, ask()))[1] == "off"
    upstream.base_digest = "e" * 64
    await worker.registry.poll_once()
    assert [(await post(http, worker, ask()))[1] for _ in range(2)] == ["miss", "hit"]
    await landed(worker)


async def test_a_base_that_changed_meanwhile_keeps_nothing(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    upstream.script.hold = asyncio.Event()
    asking = asyncio.create_task(post(http, cached, ask()))
    await until(lambda: upstream.requests == 1)
    upstream.base_digest = "e" * 64
    await cached.registry.poll_once()
    upstream.script.hold.set()
    await asking
    await landed(cached)
    assert await cached.redis.keys(f"{{{cached.keys.now.tenant}}}:response:*") == []


async def test_a_dropped_cache_answers_nothing(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    await post(http, cached, ask())
    turn_on(cached, epoch=2)  # moves with the salt, in one statement
    assert (await post(http, cached, ask()))[1] == "miss"
    await landed(cached)
    assert await response_cache.drop(cached.redis, cached.keys.now.tenant) == 2
    assert (await post(http, cached, ask()))[1] == "miss"
    await landed(cached)


async def test_a_tenant_that_changes_while_it_is_counted_keeps_nothing(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alias may have moved: the answer is of other weights than the name."""
    reserve = cached.walk._parts.limiter.reserve

    async def moved(reservation: Any, tokens: Tokens) -> None:
        await cached.redis.set(f"{{{cached.keys.now.tenant}}}:epoch", 5)
        await reserve(reservation, tokens)

    monkeypatch.setattr(cached.walk._parts.limiter, "reserve", moved)
    await post(http, cached, ask())
    await landed(cached)
    assert await cached.redis.keys(f"{{{cached.keys.now.tenant}}}:response:*") == []


async def test_at_rest_it_is_sealed(cached: Worker, upstream: Upstream, http: aiohttp.ClientSession) -> None:
    upstream.script.words = ["Treasure", " island"]
    _, _, raw = await post(http, cached, ask())
    await landed(cached)
    (name,) = await cached.redis.keys(f"{{{cached.keys.now.tenant}}}:response:*")
    kept: Any = await cached.redis.get(name)
    assert b"Treasure" in raw
    assert b"Treasure" not in kept
    assert b"pirate" not in kept


async def test_a_hit_that_can_t_be_metered_is_not_given(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    for stream in (False, True):
        await post(http, cached, ask(stream))
    await landed(cached)
    read_only = os.open(next(cached.journal_dir.glob("*.jsonl")), os.O_RDONLY)
    os.dup2(read_only, cached.walk._parts.journal._segment.fd)
    os.close(read_only)
    status, _, raw = await post(http, cached, ask())
    assert (status, json.loads(raw)["error"]["code"]) == (503, "service_unavailable")
    status, _, raw = await post(http, cached, ask(stream=True))
    assert b"[DONE]" not in raw
    assert b"could not be recorded" in raw
    await landed(cached)


async def test_a_tenants_crowd_makes_no_other_compute_twice(
    cached: Worker, upstream: Upstream, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flights, "MAX_WAITING", 1)
    upstream.script.hold = asyncio.Event()
    asking: list[asyncio.Task[tuple[int, str, bytes]]] = []

    async def ask_twice(num_waiting: int) -> None:
        asking.extend(asyncio.create_task(post(http, cached, ask())) for _ in range(2))
        await until(lambda: cached.replays._flights.waiting == num_waiting)

    await ask_twice(1)
    cached.keys.now = replace(cached.keys.now, tenant=TenantId(uuid4()))
    await ask_twice(2)
    upstream.script.hold.set()
    assert sorted(how for _, how, _ in await asyncio.gather(*asking)) == ["hit", "hit", "miss", "miss"]
    assert upstream.requests == 2
    await landed(cached)
