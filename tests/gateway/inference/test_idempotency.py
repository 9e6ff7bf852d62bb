"""`Idempotency-Key` over real sockets and two workers: one computation and one bill, whoever leaves or
dies."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from gateway.idempotency import service
from gateway.idempotency.names import record_name
from gateway.idempotency.records import Records
from gateway.limits.reservation import Reservation
from gateway.principal import CacheMode, CachePolicy, TenantId
from gateway.usage.event import UsageEvent
from gateway.usage.journal import JournalFailed
from tests.gateway.inference.conftest import Keeping, Worker, cut_receipt, until
from tests.gateway.inference.upstream import Upstream

MakeWorker = Callable[..., Awaitable[Worker]]
CHAT = "/v1/chat/completions"


def ask(stream: bool = False, **more: Any) -> dict[str, Any]:
    return {"model": "pirate", "messages": [{"role": "user", "content": "Hé"}], "stream": stream, **more}


async def post(
    http: aiohttp.ClientSession, worker: Worker, key: str, body: Any | None = None
) -> tuple[int, Any, bytes]:
    headers = {"Idempotency-Key": key}
    async with http.post(worker.url + CHAT, json=body or ask(), headers=headers) as answer:
        return answer.status, answer.headers, await answer.read()


def code(raw: bytes) -> str:
    return str(json.loads(raw)["error"]["code"])


def records(worker: Worker) -> Records:
    return worker.replays.parts.idempotency._records


@pytest.fixture
async def pair(make_worker: MakeWorker, upstream: Upstream) -> tuple[Worker, Worker]:
    """Two workers of one gateway: the same tenant, the same Redis, the same replica."""
    return await pair_of(make_worker, upstream, Keeping())


async def pair_of(make_worker: MakeWorker, upstream: Upstream, keeping: Keeping) -> tuple[Worker, Worker]:
    one, two = [await make_worker(upstream, keeping=keeping) for _ in range(2)]
    two.keys.now = one.keys.now
    return one, two


@pytest.mark.parametrize("stream", [False, True])
async def test_a_retry_hears_the_answer_again(
    pair: tuple[Worker, Worker], upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    one, two = pair
    status, headers, raw = await post(http, one, "key", ask(stream))
    first, _ = cut_receipt(raw)  # a replay is the first try's, and has none of its own
    assert (status, "idempotent-replayed" in headers) == (200, False)
    for worker in (one, two):
        status, again, raw = await post(http, worker, "key", ask(stream))
        assert (status, raw) == (200, first)
        assert again["idempotent-replayed"] == "true"
        assert again["x-motet-original-request"] == headers["x-request-id"] != again["x-request-id"]
        assert again["content-type"] == headers["content-type"]
        assert again["x-motet-digest"] == headers["x-motet-digest"]
    assert upstream.requests == 1
    (event,) = one.events()
    assert (str(event.request_id), event.billed_completion_tokens) == (headers["x-request-id"], 4)
    for worker in pair:
        await worker.settled()


@pytest.mark.parametrize("cached", [False, True])
async def test_an_answer_whose_usage_was_not_recorded_is_not_given_again_for_nothing(
    worker: Worker,
    upstream: Upstream,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    cached: bool,
) -> None:
    """A full disk: the client hears 503, and its retry, which SDKs send by themselves, is billed."""
    if cached:
        worker.keys.now = replace(worker.keys.now, response_cache=CachePolicy(CacheMode.GREEDY, 1, age_s=60))
    body = ask(temperature=0)
    if cached:
        await post(http, worker, "before", body)
    append = worker.replays.parts.journal.append

    async def refuse(event: UsageEvent) -> None:
        raise JournalFailed("full")

    monkeypatch.setattr(worker.replays.parts.journal, "append", refuse)
    assert (await post(http, worker, "key", body))[0] == 503
    monkeypatch.setattr(worker.replays.parts.journal, "append", append)
    status, headers, _ = await post(http, worker, "key", body)
    assert (status, "idempotent-replayed" in headers) == (200, False)
    assert (await post(http, worker, "key", body))[1]["idempotent-replayed"] == "true"
    rows = [event for event in worker.events() if str(event.request_id) == headers["x-request-id"]]
    assert [(row.source, row.billed_completion_tokens) for row in rows] == [
        ("cache" if cached else "engine", 4)
    ]
    await worker.settled()
    await records(worker).drop(worker.keys.now.tenant)
    assert await worker.redis.keys(f"{{{worker.keys.now.tenant}}}:idempotency*") == []


async def test_the_same_key_with_another_body_is_refused(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    await post(http, worker, "key")
    for other in (ask(stream=True), ask(max_tokens=5), ask(user="x"), ask(model="base")):
        status, _, raw = await post(http, worker, "key", other)
        assert (status, code(raw)) == (422, "idempotency_key_reused")
        assert json.loads(raw)["error"]["param"] == "Idempotency-Key"
    assert (await post(http, worker, "key", ask(seed=None)))[0] == 200  # the same request, written otherwise
    assert upstream.requests == 1
    await worker.settled()


async def test_keys_and_tenants_don_t_meet(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    mine = worker.keys.now
    await post(http, worker, "key")
    for other in (
        replace(mine, tenant=TenantId(uuid4())),
        replace(mine, tenant=TenantId(uuid4()), key_id="k2"),
    ):
        worker.keys.now = other
        status, headers, _ = await post(http, worker, "key", ask(n=2))
        assert (status, "idempotent-replayed" in headers) == (200, False)
        await worker.settled()
    assert record_name(mine, "key") != record_name(replace(mine, key_id="k2"), "key")
    assert upstream.requests == 3


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "é"])
async def test_a_key_that_is_none_is_refused(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, key: str
) -> None:
    status, _, raw = await post(http, worker, key)
    assert (status, code(raw)) == (400, "invalid_idempotency_key")
    assert upstream.requests == 0
    await worker.settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_retry_waits_for_the_first_try(
    pair: tuple[Worker, Worker], upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    upstream.script.hold = asyncio.Event()
    first = asyncio.create_task(post(http, pair[0], "key", ask(stream)))
    await until(lambda: upstream.requests == 1)
    others = [asyncio.create_task(post(http, worker, "key", ask(stream))) for worker in pair]
    await until(lambda: all(worker.replays.parts.idempotency._waiting for worker in pair))
    upstream.script.hold.set()
    answers = [await first, *await asyncio.gather(*others)]
    assert {status for status, _, _ in answers} == {200}
    assert len({cut_receipt(raw)[0] for _, _, raw in answers}) == 1
    assert upstream.requests == len(pair[0].events()) == 1
    for worker in pair:
        await worker.settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_when_the_first_client_leaves_its_retry_gets_the_answer(
    pair: tuple[Worker, Worker], upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    upstream.script.hold = asyncio.Event()
    first = asyncio.create_task(post(http, pair[0], "key", ask(stream)))
    await until(lambda: upstream.requests == 1)
    first.cancel()
    retry = asyncio.create_task(post(http, pair[1], "key", ask(stream)))
    await until(lambda: pair[1].replays.parts.idempotency._waiting)
    upstream.script.hold.set()
    status, headers, raw = await retry
    assert (status, headers["idempotent-replayed"]) == (200, "true")
    assert "世界" in raw.decode()
    (event,) = pair[0].events()
    assert (event.outcome, event.billed_completion_tokens) == ("finished", 4)
    assert upstream.only().outcome == "finished"
    for worker in pair:
        await worker.settled()


@pytest.mark.parametrize("stream", [False, True])
async def test_when_nobody_comes_it_is_aborted_and_the_next_one_runs_anew(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession, stream: bool
) -> None:
    one, two = await pair_of(make_worker, upstream, Keeping(grace_s=0.05))
    upstream.script.hold = asyncio.Event()
    first = asyncio.create_task(post(http, one, "key", ask(stream)))
    await until(lambda: upstream.requests == 1)
    first.cancel()
    await until(lambda: upstream.only().outcome == "aborted")
    await one.settled()
    assert await one.redis.keys(f"{{{one.keys.now.tenant}}}:idempotency:*") == []
    upstream.script.hold.set()
    status, headers, _ = await post(http, two, "key", ask(stream))
    assert (status, "idempotent-replayed" in headers) == (200, False)
    aborted, finished = sorted(one.events(), key=lambda event: event.outcome)
    assert (aborted.outcome, aborted.billed_completion_tokens) == ("aborted", 1)
    assert (finished.outcome, finished.billed_completion_tokens) == ("finished", 4)
    assert aborted.request_id != finished.request_id
    await two.settled()


async def test_a_first_try_that_nobody_hears_leaves_its_place_to_its_retry(
    pair: tuple[Worker, Worker], upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    one, two = pair
    one.limit(max_parallel=1)
    two.keys.now = one.keys.now
    upstream.script.hold = asyncio.Event()
    first = asyncio.create_task(post(http, one, "key"))
    await until(lambda: upstream.requests == 1)
    assert (await post(http, two, "key"))[0] == 429
    first.cancel()
    leases = f"{{{one.keys.now.tenant}}}:key:k1:leases"
    for _ in range(200):
        if await one.redis.zcard(leases) == 0:
            break
        await asyncio.sleep(0.01)
    retry = asyncio.create_task(post(http, two, "key"))
    await until(lambda: two.replays.parts.idempotency._waiting)
    upstream.script.hold.set()
    assert (await retry)[0] == 200
    assert upstream.requests == 1
    for worker in pair:
        await worker.settled()


async def test_leaving_first_tries_gets_nobody_more_at_a_time_than_twice_the_limit(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.limit(max_parallel=1)
    upstream.script.hold = asyncio.Event()
    limiter, left = worker.walk._parts.limiter, list[bool]()
    leave_place = limiter.leave_place

    async def noted(reservation: Reservation) -> None:  # watched, not changed
        await leave_place(reservation)
        left.append(not reservation.holds_place)

    monkeypatch.setattr(limiter, "leave_place", noted)

    async def ask_and_leave(number: int) -> None:
        asking = asyncio.create_task(post(http, worker, f"key {number}"))
        await until(lambda: upstream.requests == number)
        asking.cancel()
        await until(lambda: len(left) == number)

    await ask_and_leave(1)
    await ask_and_leave(2)
    assert left == [True, False]
    assert (await post(http, worker, "key 3"))[0] == 429
    assert upstream.requests == 2
    upstream.script.hold.set()
    await worker.settled()


async def test_a_retry_that_leaves_too_is_waited_for_no_longer(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    one, two = await pair_of(make_worker, upstream, Keeping(grace_s=0.4))
    upstream.script.hold = asyncio.Event()
    first = asyncio.create_task(post(http, one, "key"))
    await until(lambda: upstream.requests == 1)
    first.cancel()
    retry = asyncio.create_task(post(http, two, "key"))
    await until(lambda: two.replays.parts.idempotency._waiting)
    retry.cancel()
    await until(lambda: upstream.only().outcome == "aborted")
    for worker in (one, two):
        await worker.settled()
    (event,) = one.events()
    assert event.outcome == "aborted"


async def test_errors_are_not_kept(worker: Worker, upstream: Upstream, http: aiohttp.ClientSession) -> None:
    refused = {"message": "No.", "type": "invalid_request_error", "param": "stop", "code": "x"}
    scripts: list[dict[str, Any]] = [
        {"refuse": (400, refused)},
        {"refuse": None, "cut_after": 1},
        {"cut_after": None, "fail_after": 2},
    ]
    for script in scripts:
        for setting, value in script.items():
            setattr(upstream.script, setting, value)
        await post(http, worker, "key", ask(stream=True))
        await worker.settled()
        assert await worker.redis.keys(f"{{{worker.keys.now.tenant}}}:idempotency:*") == []
    upstream.script.fail_after = None
    assert (await post(http, worker, "key", ask(stream=True)))[0] == 200
    assert upstream.requests == 4
    await worker.settled()


async def test_what_never_ran_leaves_its_key_free(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    for body in (ask(max_tokens=10_000_000), ask(model="unknown")):
        assert (await post(http, worker, "key", body))[0] in (400, 404)
        await worker.settled()
    worker.limit(tokens_per_minute=10)
    assert (await post(http, worker, "first"))[0] == 200  # from a full bucket
    assert (await post(http, worker, "key"))[0] == 429
    worker.limit()  # none
    status, headers, _ = await post(http, worker, "key", ask(max_tokens=5))
    assert (status, "idempotent-replayed" in headers) == (200, False)
    await worker.settled()


async def test_an_answer_that_is_too_large_does_not_run_twice_unasked(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, keeping=Keeping(answer_bytes=300))
    upstream.script.words = ["x" * 100] * 5
    for stream in (False, True):
        key = f"key-{stream}"
        assert (await post(http, worker, key, ask(stream)))[0] == 200
        status, headers, raw = await post(http, worker, key, ask(stream))
        assert (status, code(raw)) == (409, "idempotent_answer_not_kept")
        assert headers["x-should-retry"] == "false"
    assert upstream.requests == 2
    await worker.settled()


async def test_at_rest_it_is_sealed_and_bounded(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker = await make_worker(upstream, keeping=Keeping(items=3))
    upstream.script.words = ["Treasure", " island"]
    for number in range(5):
        await post(http, worker, f"key-{number}")
    names = await worker.redis.keys(f"{{{worker.keys.now.tenant}}}:idempotency:*")
    assert len(names) == 3
    for name in names:
        kept: Any = await worker.redis.hgetall(name)
        assert b"Treasure" not in b"".join(kept.values())
        assert 0 < await worker.redis.pttl(name) <= 24 * 3600 * 1000
    assert (await post(http, worker, "key-0"))[1].get("idempotent-replayed") is None  # the oldest went
    assert (await post(http, worker, "key-4"))[1]["idempotent-replayed"] == "true"
    assert await records(worker).drop(worker.keys.now.tenant) == 3
    await worker.settled()


async def test_a_cached_answer_is_kept_for_retries_too(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    worker.keys.now = replace(worker.keys.now, response_cache=CachePolicy(CacheMode.GREEDY, 1, 60))
    body = ask(temperature=0)
    seen = [(await post(http, worker, key, body))[1] for key in ("one", "two", "two")]
    assert [headers["x-motet-cache"] for headers in seen] == ["miss", "hit", "off"]
    assert [headers.get("idempotent-replayed") for headers in seen] == [None, None, "true"]
    assert Counter(event.source for event in worker.events()) == {"engine": 1, "cache": 1}
    await worker.settled()


async def test_leaving_at_random_points_is_one_computation_and_one_bill(
    pair: tuple[Worker, Worker], upstream: Upstream, http: aiohttp.ClientSession
) -> None:
    dice = random.Random(7)
    upstream.script.pause_s = 0.005

    async def one(number: int) -> bytes:
        body = ask(stream=dice.random() < 0.5)
        while True:
            try:
                async with asyncio.timeout(dice.random() * 0.05):
                    return (await post(http, dice.choice(pair), f"key-{number}", body))[2]
            except TimeoutError:
                if dice.random() < 0.4:
                    return (await post(http, dice.choice(pair), f"key-{number}", body))[2]

    answers = await asyncio.gather(*(one(number) for number in range(24)))
    assert all("世界" in answer.decode() for answer in answers)
    for worker in pair:
        await worker.settled()
    rows = pair[0].events()
    assert len(rows) == len({row.request_id for row in rows}) == 24
    assert {row.outcome for row in rows} == {"finished"}
    assert {row.billed_completion_tokens for row in rows} == {4}


async def test_a_tenants_crowd_of_retries_leaves_room_for_anothers(
    worker: Worker, upstream: Upstream, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_WAITING", 1)
    upstream.script.hold = asyncio.Event()
    waiting = worker.replays.parts.idempotency._waiting
    asked: list[asyncio.Task[tuple[int, Any, bytes]]] = []

    async def ask_twice(num_tenants: int) -> None:
        asked.append(asyncio.create_task(post(http, worker, "key")))
        await until(lambda: upstream.requests == num_tenants)
        asked.append(asyncio.create_task(post(http, worker, "key")))
        await until(lambda: len(waiting) == num_tenants)

    await ask_twice(1)
    worker.keys.now = replace(worker.keys.now, tenant=TenantId(uuid4()))
    await ask_twice(2)
    await asyncio.sleep(0.2)  # several looks of each
    upstream.script.hold.set()
    assert [status for status, _, _ in await asyncio.gather(*asked)] == [200] * 4
    assert not waiting
    await worker.settled()
