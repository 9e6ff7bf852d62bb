from __future__ import annotations

import asyncio
import random
from uuid import uuid4

import pytest

from gateway.errors import Timeout, Unavailable
from gateway.principal import TenantId
from gateway.queueing.fair_queue import IDLE_TENANTS, FairQueue, Place

A, B = TenantId(uuid4()), TenantId(uuid4())


def make_queue(capacity: int = 1, items: int = 100, tenant_items: int = 50, wait_s: float = 5.0) -> FairQueue:
    return FairQueue(capacity=capacity, max_items=items, max_items_tenant=tenant_items, max_wait_s=wait_s)


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def serve(queue: FairQueue, order: list[TenantId], tenant: TenantId, tokens: int) -> None:
    place = await queue.enter(tenant, tokens)
    order.append(tenant)
    await asyncio.sleep(0)
    place.leave(tokens)


async def test_a_quiet_tenant_does_not_wait_behind_a_flood() -> None:
    queue, order = make_queue(), list[TenantId]()
    holder = await queue.enter(A, 100)
    flood = [asyncio.create_task(serve(queue, order, A, 100)) for _ in range(40)]
    await settle()
    quiet = asyncio.create_task(serve(queue, order, B, 100))
    await settle()
    holder.leave(100)
    await asyncio.gather(quiet, *flood)
    assert order.index(B) <= 1
    assert queue.running == queue.waiting == 0


async def test_places_follow_tokens_not_requests() -> None:
    queue, order = make_queue(), list[TenantId]()
    holder = await queue.enter(TenantId(uuid4()), 1)
    tasks = [asyncio.create_task(serve(queue, order, A, 300)) for _ in range(10)]
    tasks += [asyncio.create_task(serve(queue, order, B, 100)) for _ in range(30)]
    await settle()
    holder.leave()
    await asyncio.gather(*tasks)
    assert 4 <= order[:20].count(A) <= 6  # one of A's to three of B's


async def test_a_lone_tenant_has_seven_eighths_and_the_estimate_is_corrected() -> None:
    queue = make_queue(capacity=8)
    places = await asyncio.gather(*(queue.enter(A, 10_000) for _ in range(7)))
    assert queue.running == 7
    for place in places:
        place.leave(1)
        place.leave(1)
    assert queue.running == 0
    order = list[TenantId]()
    queue.set_capacity(1)
    holder = await queue.enter(TenantId(uuid4()), 1)
    tasks = [asyncio.create_task(serve(queue, order, tenant, 10)) for tenant in (A, B, A, B)]
    await settle()
    holder.leave()
    await asyncio.gather(*tasks)
    assert order[:2] in ([A, B], [B, A])


@pytest.mark.parametrize(("capacity", "weight", "most"), [(64, 1, 56), (64, 8, 56), (32, 8, 24), (4, 1, 3)])
async def test_long_requests_of_one_tenant_leave_places_for_the_next_ones(
    capacity: int, weight: int, most: int
) -> None:
    """Nothing of the flood ends; a request with eight choices is eight sequences to a replica."""
    queue = make_queue(capacity=capacity, items=1000, tenant_items=500)
    flood = [asyncio.create_task(queue.enter(A, 10_000, weight=weight)) for _ in range(100)]
    await settle()
    assert queue.running == most
    for number in range(min(3, capacity - most)):
        async with asyncio.timeout(0.1):
            await queue.enter(TenantId(uuid4()), 10)
        await settle()
        assert queue.running == most + number + 1  # and none of them let the flood in again
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


async def test_what_others_keep_free_goes_to_the_flood_when_they_leave() -> None:
    queue = make_queue(capacity=64, tenant_items=100)
    others = [await queue.enter(TenantId(uuid4()), 10) for _ in range(16)]
    flood = [asyncio.create_task(queue.enter(A, 10)) for _ in range(80)]
    await settle()
    assert queue.running == 16 + 42
    for place in others:
        place.leave(10)
    await settle()
    assert queue.running == 56
    held = [task for task in flood if task.done()]
    while held:
        held.pop().result().leave(10)
        await settle()
        held = [task for task in flood if task.done() and task.result()._queue is not None]
    assert queue.running == queue.waiting == 0


async def test_many_choices_wait_for_no_more_than_one_free_place() -> None:
    """Else a stream of small requests could keep them out for ever."""
    queue = make_queue(capacity=4)
    small = [await queue.enter(TenantId(uuid4()), 10) for _ in range(4)]
    many = asyncio.create_task(queue.enter(A, 10, weight=8))
    await settle()
    assert not many.done()
    small.pop().leave(10)
    place = await many
    assert queue.running == 3 + 8
    place.leave(10)
    for each in small:
        each.leave(10)
    assert queue.running == 0


async def test_bounds_shed_with_retry_after() -> None:
    queue = make_queue(items=3, tenant_items=2)
    holder = await queue.enter(A, 1)
    waiting = [asyncio.create_task(queue.enter(A, 1)) for _ in range(2)]
    await settle()
    with pytest.raises(Unavailable, match="your requests") as refused:
        await queue.enter(A, 1)
    assert refused.value.headers["retry-after"] == "1"
    waiting.append(asyncio.create_task(queue.enter(B, 1)))
    await settle()
    with pytest.raises(Unavailable, match="queue is full"):
        await queue.enter(TenantId(uuid4()), 1)
    holder.leave()
    for place in asyncio.as_completed(waiting):
        (await place).leave()
    assert queue.running == queue.waiting == 0


async def test_a_wait_ends() -> None:
    queue = make_queue(wait_s=0.05)
    holder = await queue.enter(A, 1)
    with pytest.raises(Timeout) as refused:
        await queue.enter(B, 1)
    assert refused.value.status == 504
    assert "retry-after-ms" in refused.value.headers
    assert queue.waiting == 0
    holder.leave()
    (await queue.enter(B, 1)).leave()


async def test_a_request_turned_away_goes_before_its_tenants_others() -> None:
    queue, order = make_queue(), list[str]()

    async def take(name: str, *, again: bool = False) -> None:
        place = await queue.enter(A, 1, again=again)
        order.append(name)
        place.leave(1)

    holder = await queue.enter(A, 1)
    tasks = [asyncio.create_task(take("second"))]
    await settle()
    tasks.append(asyncio.create_task(take("first", again=True)))
    await settle()
    holder.leave()
    await asyncio.gather(*tasks)
    assert order == ["first", "second"]


async def test_cancelled_waits_leave_nothing_behind() -> None:
    dice = random.Random(7)
    queue = make_queue(capacity=4, items=10_000, tenant_items=10_000)
    tenants = [TenantId(uuid4()) for _ in range(5)]

    async def one() -> None:
        place: Place = await queue.enter(dice.choice(tenants), dice.randint(1, 500))
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


async def test_forgetting_idle_tenants_never_drops_queued_work() -> None:
    queue = make_queue(items=10_000)
    holder = await queue.enter(A, 1)
    waiting = asyncio.create_task(queue.enter(B, 1))
    await settle()
    for _ in range(IDLE_TENANTS + 10):
        queue._new_flow(TenantId(uuid4()))
    holder.leave()
    (await waiting).leave()
    assert queue.waiting == 0
