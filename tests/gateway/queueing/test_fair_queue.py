"""The queue on a real event loop: errors, cancelling, and what it leaves behind."""

from __future__ import annotations

import asyncio
import random
from uuid import uuid4

import pytest

from gateway.errors import Timeout, Unavailable
from gateway.principal import TenantId
from gateway.queueing.bounds import QueueLimits
from gateway.queueing.fair_queue import Ask, FairQueue, Place
from gateway.queueing.metrics import WAIT_BY_CLASS

A, B = TenantId(uuid4()), TenantId(uuid4())


def make_queue(capacity: int = 1, items: int = 100, tenant_items: int = 50, wait_s: float = 5.0) -> FairQueue:
    limits = QueueLimits(max_items=items, max_items_tenant=tenant_items, max_wait_s=wait_s)
    return FairQueue(limits, capacity=capacity)


async def enter(queue: FairQueue, tenant: TenantId, tokens: int, *, wait_s: float | None = None) -> Place:
    return await queue.enter(Ask(tenant, queue.ticket("standard", tokens), wait_s=wait_s))


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_free_place_is_had_at_once() -> None:
    queue = make_queue(capacity=2)
    entering = enter(queue, A, 10)
    with pytest.raises(StopIteration) as ended:
        entering.send(None)
    place: Place = ended.value.value
    assert queue.running == 1
    place.leave(10)
    place.leave(10)
    assert queue.running == 0


async def test_bounds_shed_with_retry_after() -> None:
    queue = make_queue(items=3, tenant_items=2)
    holder = await enter(queue, A, 1)
    waiting = [asyncio.create_task(enter(queue, A, 1)) for _ in range(2)]
    await turns()
    with pytest.raises(Unavailable, match="your requests") as refused:
        await enter(queue, A, 1)
    assert refused.value.headers["retry-after"] == "1"
    waiting.append(asyncio.create_task(enter(queue, B, 1)))
    await turns()
    with pytest.raises(Unavailable, match="queue is full"):
        await enter(queue, TenantId(uuid4()), 1)
    holder.leave()
    for place in asyncio.as_completed(waiting):
        (await place).leave()
    assert queue.running == queue.waiting == 0


async def test_a_wait_ends() -> None:
    queue = make_queue(wait_s=0.05)
    holder = await enter(queue, A, 1)
    with pytest.raises(Timeout) as refused:
        await enter(queue, B, 1)
    assert refused.value.status == 504
    assert "retry-after-ms" in refused.value.headers
    assert queue.waiting == 0
    holder.leave()
    (await enter(queue, B, 1)).leave()


async def test_one_that_leaves_is_gone_at_once() -> None:
    queue = make_queue()
    holder = await enter(queue, A, 1)
    waiting = asyncio.create_task(enter(queue, B, 1))
    await turns()
    assert queue.waiting == 1
    waiting.cancel()
    await turns()
    assert queue.waiting == 0
    holder.leave()
    assert queue.running == 0


async def test_a_place_that_comes_as_its_request_is_cancelled_goes_to_the_next() -> None:
    queue = make_queue()
    holder = await enter(queue, A, 1)
    first, second = (asyncio.create_task(enter(queue, B, 1)) for _ in range(2))
    await turns()
    first.cancel()
    holder.leave()
    place = await second
    assert queue.running == 1
    place.leave(1)
    assert queue.running == queue.waiting == 0


async def test_a_request_turned_away_goes_before_its_tenants_others() -> None:
    queue, order = make_queue(), list[str]()

    async def take(name: str, *, again: bool = False) -> None:
        place = await queue.enter(Ask(A, queue.ticket("standard", 1), again=again))
        order.append(name)
        place.leave(1)

    holder = await enter(queue, A, 1)
    tasks = [asyncio.create_task(take("second"))]
    await turns()
    tasks.append(asyncio.create_task(take("first", again=True)))
    await turns()
    holder.leave()
    await asyncio.gather(*tasks)
    assert order == ["first", "second"]


async def test_more_places_wake_the_waiting() -> None:
    queue = make_queue(capacity=1)
    holder = await enter(queue, A, 1)
    waiting = [asyncio.create_task(enter(queue, A, 1)) for _ in range(3)]
    await turns()
    queue.set_capacity(4)
    for place in await asyncio.gather(*waiting):
        place.leave(1)
    holder.leave(1)
    assert queue.running == 0


async def test_cancelled_waits_leave_nothing_behind() -> None:
    dice = random.Random(7)
    queue = make_queue(capacity=4, items=10_000, tenant_items=10_000)
    tenants = [TenantId(uuid4()) for _ in range(5)]

    async def one() -> None:
        classes = ("interactive", "standard", "batch")
        ticket = queue.ticket(dice.choice(classes), dice.randint(1, 500))
        place = await queue.enter(Ask(dice.choice(tenants), ticket, places=dice.choice([1, 1, 3])))
        try:
            await asyncio.sleep(dice.random() * 0.002)
        finally:
            place.leave(dice.randint(0, 500))

    tasks = [asyncio.create_task(one()) for _ in range(600)]
    for task in dice.sample(tasks, 250):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert queue.running == queue.waiting == 0
    assert queue._scheduler.num_tenants == 0


async def test_waits_are_counted_by_class() -> None:
    queue = make_queue()
    before = WAIT_BY_CLASS[2]._sum.get(), WAIT_BY_CLASS[0]._sum.get()
    holder = await enter(queue, A, 1)
    waiting = asyncio.create_task(queue.enter(Ask(B, queue.ticket("batch", 1))))
    await asyncio.sleep(0.02)
    holder.leave()
    (await waiting).leave()
    assert WAIT_BY_CLASS[2]._sum.get() - before[0] >= 0.015
    assert WAIT_BY_CLASS[0]._sum.get() == before[1]
