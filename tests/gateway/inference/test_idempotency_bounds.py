"""What requests with an `Idempotency-Key` may hold: no more of a limit than twice, and no room of others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from gateway.idempotency import service
from gateway.limits.reservation import Reservation
from gateway.principal import TenantId
from tests.gateway.inference.conftest import Worker, until
from tests.gateway.inference.test_idempotency import post
from tests.gateway.inference.upstream import Upstream


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
