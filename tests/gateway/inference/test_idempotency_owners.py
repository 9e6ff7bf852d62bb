"""A worker dies, or is silent for too long, with a request of a key: another runs it, one bills."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import aiohttp
import msgspec

from adapters.wire import decode_chat
from gateway.answers.sealing import tagged
from gateway.db import Database
from gateway.idempotency.names import record_name
from gateway.idempotency.records import Hold
from gateway.idempotency.service import DIGEST_PURPOSE
from gateway.ids import uuid7
from gateway.inference.response_cache_key import canonical
from gateway.principal import TenantId
from gateway.usage import repository as usage
from tests.gateway.inference.conftest import DATA_KEYS, Keeping, Worker, until
from tests.gateway.inference.test_idempotency import CHAT, MakeWorker, ask, pair_of, post, records
from tests.gateway.inference.upstream import Upstream


async def begun_by_a_dead_worker(worker: Worker, key: str, body: Any) -> Hold:
    """A first try whose owner is gone: its lease runs out."""
    who, request_id = worker.keys.now, uuid7()
    content = CHAT.encode() + b"\0" + canonical(decode_chat(json.dumps(body).encode()))
    digests = DATA_KEYS.macs(DIGEST_PURPOSE, who.tenant, tagged(content))
    name = record_name(who, key)
    found = await records(worker).claim(who.tenant, name, digests, request_id)
    assert found.request_id == request_id
    return Hold(who.tenant, name, request_id, found.generation)


async def test_when_the_owner_died_its_retry_runs_in_its_place_as_the_same_request(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession, db: Database, tenant: TenantId
) -> None:
    worker = await make_worker(upstream, keeping=Keeping(lease_s=0.3, database=db))
    worker.keys.now = replace(worker.keys.now, tenant=tenant)
    hold = await begun_by_a_dead_worker(worker, "key", ask())
    status, headers, _ = await post(http, worker, "key")
    assert (status, headers["x-motet-original-request"]) == (200, str(hold.request_id))
    (event,) = worker.events()
    assert (event.request_id, event.attempt) == (hold.request_id, 33)
    assert event.billed_completion_tokens == 4
    async with db.system_session() as session:
        (marker,) = await usage.uncounted_of(session, [hold.request_id])
    assert (marker.attempt, marker.outcome) == (32, "taken_over")
    assert (await post(http, worker, "key"))[1]["idempotent-replayed"] == "true"
    await worker.settled()


async def test_what_is_billed_of_a_dead_owner_is_not_billed_again(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession, db: Database, tenant: TenantId
) -> None:
    worker = await make_worker(upstream, keeping=Keeping(lease_s=0.3, database=db))
    worker.keys.now = replace(worker.keys.now, tenant=tenant)
    await post(http, worker, "another")
    hold = await begun_by_a_dead_worker(worker, "key", ask())
    (done,) = worker.events()
    async with db.system_session() as session:  # as the reconciler brings it in
        await usage.insert_events(session, [msgspec.structs.replace(done, request_id=hold.request_id)])
    assert (await post(http, worker, "key"))[0] == 200
    again = next(event for event in worker.events() if event.request_id == hold.request_id)
    assert (again.attempt, again.completion_tokens, again.billed_completion_tokens) == (33, 4, 0)
    await worker.settled()


async def test_an_owner_that_was_silent_for_too_long_bills_nothing(
    make_worker: MakeWorker, upstream: Upstream, http: aiohttp.ClientSession, db: Database, tenant: TenantId
) -> None:
    """It is alive, but another runs in its place: both answer, one bills."""
    one, two = await pair_of(make_worker, upstream, Keeping(lease_s=0.3, database=db))
    one.keys.now = two.keys.now = replace(one.keys.now, tenant=tenant)
    upstream.script.hold = asyncio.Event()
    first = asyncio.create_task(post(http, one, "key"))
    await until(lambda: one.replays.parts.idempotency.claims.held)
    held = one.replays.parts.idempotency.claims.held
    silenced = held.copy()
    held.clear()  # it renews no more
    await until(lambda: upstream.requests == 1)
    second = asyncio.create_task(post(http, two, "key"))
    await until(lambda: upstream.requests == 2)
    assert silenced
    upstream.script.hold.set()
    assert [status for status, _, _ in await asyncio.gather(first, second)] == [200, 200]
    rows = sorted(one.events(), key=lambda event: event.attempt)
    assert [(row.attempt, row.billed_completion_tokens) for row in rows] == [(1, 0), (33, 4)]
    assert len({row.request_id for row in rows}) == 1
    for worker in (one, two):
        await worker.settled()
