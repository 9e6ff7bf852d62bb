"""What is remembered of requests that took the real walk: every end of one, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from sqlalchemy import text

from gateway.db import Database
from gateway.events import repository, service
from gateway.events.budget import Budget
from gateway.events.event import Outcome, RequestEvent
from gateway.events.schemas import RequestStory
from gateway.events.writer import Writer
from gateway.inference.dispatch import Patience
from gateway.principal import CacheMode, CachePolicy
from gateway.traffic.minute import ALL, BASE, COUNTS, PLATFORM, UNRESOLVED, MinuteRow
from tests.gateway.inference.conftest import ADAPTER, Worker, until
from tests.gateway.inference.test_walk import CHAT, ask, post
from tests.gateway.inference.upstream import Upstream

Http = aiohttp.ClientSession
MakeWorker = Callable[..., Awaitable[Worker]]


async def ended(worker: Worker, number: int = 1) -> RequestEvent:
    """The newest event, once so many are there."""
    await until(lambda: len(worker.recorder.ring) >= number)
    assert len(worker.recorder.ring) == number
    return worker.recorder.ring[-1]


async def told(worker: Worker, db: Database, event: RequestEvent) -> RequestStory:
    """What its tenant reads of it, by way of the database."""
    async with db.system_session() as session:
        await repository.add(session, [event])
    return await service.story(db, worker.keys.now.tenant, str(event.request_id))


def figures(worker: Worker) -> dict[str, MinuteRow]:
    """By adapter; of tests that run over the end of a minute, the sums of counts."""
    keys, rows = worker.recorder.tally.changed(100)
    worker.recorder.tally.not_written(keys)
    found: dict[str, MinuteRow] = {}
    for row in rows:
        if row.tenant_id == PLATFORM:
            continue
        if row.adapter in found:
            for name in COUNTS:
                setattr(found[row.adapter], name, getattr(found[row.adapter], name) + getattr(row, name))
        else:
            found[row.adapter] = row
    return found


async def test_a_served_stream_tells_its_steps(
    worker: Worker, upstream: Upstream, http: Http, db: Database
) -> None:
    upstream.script.pause_s = 0.01
    headers = {"x-request-id": "mine", "x-stainless-retry-count": "2"}
    async with http.post(worker.url + CHAT, json=ask(stream=True), headers=headers) as answer:
        await answer.read()
    story = await told(worker, db, await ended(worker))
    request = story.request
    assert (request.outcome, request.status, request.stream) == (Outcome.SERVED, 200, True)
    assert str(request.id) == answer.headers["x-request-id"]
    assert (request.adapter, request.version, story.artefact) == ("pirate", 3, ADAPTER)
    assert (request.prompt_tokens, request.completion_tokens, story.billed) == (7, 4, True)
    assert (story.client_request_id, story.client_retries, story.attempts) == ("mine", 2, 1)
    assert story.replica == upstream.url
    steps = {step.step: step.ms for step in story.timeline}
    assert set(steps) >= {"auth", "limits", "body", "resolve", "count", "first_byte", "stream", "end"}
    assert sum(steps.values()) == pytest.approx(request.total_ms, abs=0.1)
    assert steps["stream"] >= 20
    assert "streaming the answer" in story.explanation
    row = figures(worker)["pirate"]
    assert (row.served, row.prompt_tokens, row.completion_tokens) == (1, 7, 4)
    assert sum(row.ttft) == sum(row.total) == 1


@pytest.mark.parametrize(
    ("limits", "by", "limit"),
    [
        ({"requests_per_minute": 1}, "key.requests_per_minute", 1),
        ({"tokens_per_minute": 5}, "key.tokens_per_minute", 5),
        ({"requests_per_minute": 0}, "key.closed", 0),
    ],
)
async def test_a_limit_says_which_it_was_and_when_to_come_back(
    worker: Worker, http: Http, db: Database, limits: dict[str, int], by: str, limit: int
) -> None:
    worker.limit(**limits)
    status, number = 200, 0
    while status == 200:
        status, headers, _ = await post(http, worker, ask())
        number += 1
    assert status == 429
    story = await told(worker, db, await ended(worker, number))
    assert (story.request.outcome, story.at_step) == (Outcome.REFUSED, "limits")
    refusal = story.refusal
    assert refusal is not None
    assert (refusal.by, refusal.limit, refusal.available) == (by, limit, 0)
    assert refusal.needed is not None
    assert refusal.needed >= 1
    assert refusal.retry_after_ms == int(headers["retry-after-ms"])
    assert refusal.retry_at is not None
    assert refusal.retry_at > story.ended_at
    assert "This key" in story.explanation or "of this key" in story.explanation
    assert figures(worker)[ALL].refused_by_limit == 1


async def test_a_place_that_is_taken_says_so(
    worker: Worker, upstream: Upstream, http: Http, db: Database
) -> None:
    worker.limit(max_parallel=1)
    upstream.script.hold = asyncio.Event()
    first = asyncio.create_task(post(http, worker, ask()))
    await until(lambda: upstream.requests == 1)
    await post(http, worker, ask())
    story = await told(worker, db, await ended(worker))
    assert story.refusal is not None
    assert (story.refusal.by, story.refusal.limit, story.refusal.needed) == ("key.max_parallel", 1, 1)
    assert "This key's limit is 1 requests at a time: needed 1, available 0." in story.explanation
    upstream.script.hold.set()
    assert (await first)[0] == 200


@pytest.mark.parametrize(
    ("body", "code", "step", "says"),
    [
        (ask(model="nobody/secret"), "model_not_found", "resolve", "The model does not exist"),
        (ask(colour="red"), "unknown_parameter", "resolve", "It has a field that does not exist."),
        (ask(max_tokens=10_000_000), "context_length_exceeded", "count", "At most 8,192, it has 10,000,0"),
        (
            ask(messages=[{"role": "user", "content": "a b " * 20_000}]),
            "context_length_exceeded",
            "count",
            "At most",
        ),
        (ask(messages=[]), "empty_array", "resolve", "Its field 'messages' is not valid."),
        ("no request", "invalid_type", "resolve", "Refused with 400 invalid_type"),
    ],
)
async def test_a_fault_of_the_request_says_which(
    worker: Worker, http: Http, db: Database, body: Any, code: str, step: str, says: str
) -> None:
    status, _, _ = await post(http, worker, body)
    story = await told(worker, db, await ended(worker))
    assert (story.request.outcome, story.request.status) == (Outcome.REFUSED, status)
    assert (story.request.error_code, story.at_step) == (code, step)
    assert says in story.explanation
    found = figures(worker)
    assert found[UNRESOLVED if step == "resolve" else "pirate"].refused_otherwise == 1


async def test_nothing_of_what_a_client_wrote_is_kept_but_names(worker: Worker, http: Http) -> None:
    secret = "my secret prompt"
    await post(http, worker, ask(messages=[{"role": "user", "content": secret}]))
    await post(http, worker, ask(model=secret))
    await post(http, worker, ask() | {secret: 1})
    await post(http, worker, secret)
    await ended(worker, 4)
    assert "secret" not in repr(worker.recorder.ring)
    assert "Hé" not in repr(worker.recorder.ring)


async def test_the_queue_says_which_bound_it_was(
    make_worker: MakeWorker, upstream: Upstream, http: Http, db: Database
) -> None:
    worker = await make_worker(upstream, capacity=1)
    upstream.script.hold = asyncio.Event()
    running = asyncio.create_task(post(http, worker, ask()))
    await until(lambda: worker.queue.running == 1)
    async with http.post(worker.url + CHAT, json=ask(), headers={"x-motet-deadline-ms": "60"}) as late:
        assert late.status == 504
    story = await told(worker, db, await ended(worker))
    assert (story.request.outcome, story.at_step) == (Outcome.REFUSED, "queue")
    assert story.refusal is not None
    assert (story.refusal.by, story.refusal.code) == ("queue.deadline", "queue_timeout")
    notes = {step.step: step.note for step in story.timeline}
    assert notes["queue"] == "when it came, it was next, and all places at replicas were taken"
    assert "waiting in the queue" in story.explanation
    queued = asyncio.create_task(post(http, worker, ask()))
    await until(lambda: worker.queue.waiting == 1)
    worker.queue._limits = worker.queue._scheduler.bounds._limits = replace(
        worker.queue._limits, max_items_tenant=1
    )
    assert (await post(http, worker, ask()))[0] == 503
    story = await told(worker, db, await ended(worker, 2))
    assert story.refusal is not None
    assert (story.refusal.by, story.refusal.limit, story.refusal.needed) == ("queue.tenant_items", 1, 1)
    assert "waiting requests of this tenant: needed 1, available 0" in story.explanation
    upstream.script.hold.set()
    assert [status for status, _, _ in await asyncio.gather(running, queued)] == [200, 200]
    slow = [event for event in worker.recorder.ring if event.held_back is not None and event.status == 200]
    assert [event.queue_ms is not None and event.queue_ms > 1 for event in slow] == [True]
    assert figures(worker)["pirate"].refused_by_queue == 2


async def test_what_fails_on_our_side_says_so(
    make_worker: MakeWorker, upstream: Upstream, http: Http, db: Database
) -> None:
    worker = await make_worker(upstream, patience=Patience(10, 5, 5, 1))
    upstream.script.cut_after = 2
    assert (await post(http, worker, ask(stream=True)))[0] == 200
    story = await told(worker, db, await ended(worker))
    assert (story.request.outcome, story.request.status) == (Outcome.FAILED, 502)
    assert (story.request.error_code, story.at_step, story.billed) == ("upstream_error", "stream", False)
    upstream.script.cut_after, upstream.script.cut_before = None, True
    assert (await post(http, worker, ask()))[0] == 503
    story = await told(worker, db, await ended(worker, 2))
    assert (story.request.outcome, story.request.error_code) == (Outcome.FAILED, "replica_failed")
    assert (story.attempts, story.replica) == (1, upstream.url)
    assert figures(worker)["pirate"].failed == 2


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_is_remembered(
    worker: Worker, upstream: Upstream, http: Http, db: Database, stream: bool
) -> None:
    upstream.script.stall_after = 3
    with pytest.raises(TimeoutError):
        async with http.post(
            worker.url + CHAT, json=ask(stream=stream), timeout=aiohttp.ClientTimeout(total=0.3)
        ) as answer:
            await answer.read()
    story = await told(worker, db, await ended(worker))
    assert (story.request.outcome, story.request.status) == (Outcome.CLIENT_LEFT, None)
    assert story.at_step == ("stream" if stream else "first_byte")
    assert (story.request.completion_tokens, story.billed) == (3, True)
    row = figures(worker)["pirate"]
    assert (row.client_left, row.completion_tokens) == (1, 3)


async def test_answers_that_were_there_say_whose_they_were(worker: Worker, http: Http, db: Database) -> None:
    worker.keys.now = replace(worker.keys.now, response_cache=CachePolicy(CacheMode.GREEDY, 1, 60))
    greedy = ask(temperature=0)
    _, first, _ = await post(http, worker, greedy)
    await asyncio.sleep(0.05)
    _, second, _ = await post(http, worker, greedy)
    assert second["x-motet-cache"] == "hit"
    story = await told(worker, db, await ended(worker, 2))
    assert story.request.outcome is Outcome.CACHED
    assert str(story.original_request_id) == first["x-request-id"]
    assert (story.request.prompt_tokens, story.billed) == (7, True)
    headers = {"idempotency-key": "once"}
    for _ in range(2):
        async with http.post(worker.url + CHAT, json=ask(), headers=headers) as answer:
            assert answer.status == 200
    story = await told(worker, db, await ended(worker, 4))
    assert (story.request.outcome, story.billed) == (Outcome.REPLAYED, False)
    row = figures(worker)["pirate"]
    assert (row.served, row.cached, row.replayed, row.prompt_tokens) == (2, 1, 1, 21)


async def test_a_flood_of_refusals_is_bounded_and_counted_and_hides_nothing(
    worker: Worker, http: Http
) -> None:
    worker.recorder._budget = Budget(3)
    worker.limit(requests_per_minute=1)
    statuses = [(await post(http, worker, ask()))[0] for _ in range(40)]
    worker.limit()
    statuses.append((await post(http, worker, ask()))[0])
    assert statuses == [200, *[429] * 39, 200]
    kept = list(worker.recorder.ring)
    assert [event.outcome for event in kept if event.stands_for == 1 and event.status == 200] == [
        Outcome.SERVED,
        Outcome.SERVED,
    ]
    refused = [event.stands_for for event in kept if event.status == 429]
    assert len(refused) <= 12  # of two minutes, if it was over the end of one
    assert 20 <= sum(refused) <= 39
    assert (figures(worker)[ALL].refused_by_limit, figures(worker)[ALL].served) == (39, 2)


async def test_a_fault_in_remembering_is_not_the_clients(worker: Worker, http: Http) -> None:
    del worker.recorder.tally
    assert (await post(http, worker, ask()))[0] == 200
    assert not worker.recorder.ring


async def test_figures_of_a_window_are_the_ledgers(
    worker: Worker, upstream: Upstream, http: Http, db: Database
) -> None:
    for number in range(12):
        upstream.script.cut_after = 1 if number == 5 else None
        body = ask(stream=number % 2 == 1, model="base" if number % 3 == 0 else "pirate")
        await post(http, worker, body)
    await worker.settled()
    await Writer(db, worker.recorder).write_tally()
    ledger: dict[str, list[int]] = {}
    for event in worker.events():
        sums = ledger.setdefault(event.adapter_name or BASE, [0, 0, 0])
        sums[0] += event.outcome == "finished"
        sums[1] += event.billed_prompt_tokens
        sums[2] += event.billed_completion_tokens
    async with db.tenant_reader(worker.keys.now.tenant) as session:
        found = await session.execute(
            text(
                "SELECT adapter, sum(served), sum(prompt_tokens), sum(completion_tokens) FROM request_minutes"
                " WHERE adapter <> '(all)' GROUP BY 1"
            )
        )
        assert {adapter: [int(n) for n in sums] for adapter, *sums in found} == ledger
    assert ledger["pirate"][0] + ledger[BASE][0] == 11


async def test_postgres_away_delays_nobody_and_what_came_is_written_later(
    worker: Worker, http: Http, db: Database
) -> None:
    nowhere = Database("postgresql://nobody@127.0.0.1:1/none", "postgresql://nobody@127.0.0.1:1/none")
    worker.recorder._size = 5  # overflows
    writing = asyncio.create_task(Writer(nowhere, worker.recorder).run())
    ids = []
    for _ in range(8):
        status, headers, _ = await post(http, worker, ask())
        assert status == 200
        ids.append(headers["x-request-id"])
    await asyncio.sleep(1.3)  # it was tried at least once
    assert [str(event.request_id) for event in worker.recorder.ring] == ids[3:]
    writing.cancel()
    await asyncio.wait({writing})
    await nowhere.close()
    await Writer(db, worker.recorder).close()
    async with db.tenant_reader(worker.keys.now.tenant) as session:
        rows = await session.execute(text("SELECT request_id FROM request_events ORDER BY 1"))
        assert [str(row.request_id) for row in rows] == ids[3:]
        served = await session.scalar(text("SELECT sum(served) FROM request_minutes WHERE adapter = '(all)'"))
        assert served == 8  # the figures lose nothing
