"""The scripts in a real Redis are held to their twins, and what only they can do: leases by Redis's own
clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from gateway.limits.amounts import Tokens, Used
from gateway.limits.limiter import Limiter
from gateway.principal import Limits, Principal, TenantId
from gateway.queueing.bounds import QueueLimits
from gateway.queueing.exchange import RedisExchange
from gateway.queueing.fair_queue import Ask, FairQueue, Place
from gateway.queueing.places import NOTHING, Places, Report
from gateway.queueing.shared_places import SharedPlaces
from gateway.queueing.ticket import Lines, Ticket
from gateway.redis import connect

HEAD = st.one_of(st.just(NOTHING), st.integers(0, 40_000).map(float))
THREE = st.tuples(HEAD, HEAD, HEAD).map(list)
COUNT = st.integers(0, 20)
REPORT = st.builds(
    Report,
    sequence=st.integers(1, 40),
    used=COUNT,
    want=COUNT,
    chunk=st.integers(1, 8),
    want_owed=st.integers(0, 4),
    spare=st.sampled_from([0, 8]),
    tenants=COUNT,
    waiting=st.integers(0, 10_000).map(float),
    rate=st.integers(0, 1_000).map(float),
    heads=THREE,
    floors=THREE,
    charges=st.lists(st.integers(-1_000, 9_000).map(float), min_size=3, max_size=3),
    times=st.lists(st.integers(0, 40_000).map(float), min_size=3, max_size=3),
    loads=st.dictionaries(st.sampled_from(["http://a", "http://b"]), st.tuples(COUNT, COUNT), max_size=2),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 2), REPORT), min_size=1, max_size=12))
def test_the_script_is_its_twin(redis_url: str, steps: list[tuple[int, Report]]) -> None:
    asyncio.run(_play(redis_url, steps))


async def _play(url: str, steps: list[tuple[int, Report]]) -> None:
    redis = connect(url)
    pool, twin, places = f"queue-{uuid4().hex}", SharedPlaces(lease_s=60), Places(20, 5)
    workers = [RedisExchange(redis, pool=pool, lease_s=60, fresh_s=60) for _ in range(3)]
    for number, report in steps:
        expected = twin.report(f"w{number}", report, places, 0.0)
        got = await workers[number].report(report, places)
        assert got == expected
        if expected is not None:
            assert expected.limit <= places.capacity
            assert max(report.used, expected.limit_owed) >= expected.limit
    await redis.aclose()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), COUNT, COUNT, st.integers(0, 4)), min_size=1, max_size=40))
def test_no_more_is_given_than_there_is(steps: list[tuple[int, int, int, int]]) -> None:
    """Whatever workers ask for, as long as none uses more than it was given."""
    shared, places = SharedPlaces(lease_s=60), Places(20, 5)
    given_to = [0] * 4
    for sequence, (number, used, want, owed) in enumerate(steps, 1):
        taken = min(used, given_to[number])
        report = Report(
            sequence=sequence,
            used=taken,
            want=want,
            chunk=1,
            want_owed=owed,
            spare=0 if want else 8,
            tenants=1,
            waiting=0.0,
            rate=0.0,
            heads=[NOTHING, 0.0 if want else NOTHING, NOTHING],
            charges=[0.0] * 3,
            times=[0.0] * 3,
        )
        reply = shared.report(f"w{number}", report, places, 0.0)
        assert reply is not None
        given_to[number] = max(taken, reply.limit_owed)
        assert sum(given_to) <= places.capacity + places.margin
        assert shared.held == sum(given_to)


def asking(sequence: int, *, used: int = 0, want: int = 0) -> Report:
    return Report(
        sequence=sequence,
        used=used,
        want=want,
        chunk=1,
        want_owed=0,
        spare=0,
        tenants=1,
        waiting=0.0,
        rate=0.0,
        heads=[NOTHING, 0.0 if want else NOTHING, NOTHING],
        charges=[0.0] * 3,
        times=[0.0] * 3,
    )


async def test_what_a_silent_worker_held_is_free_after_its_lease(redis: Redis) -> None:
    pool, places = f"queue-{uuid4().hex}", Places(10, 2)
    dead = RedisExchange(redis, pool=pool, lease_s=0.3)
    alive = RedisExchange(redis, pool=pool, lease_s=60)
    first = await dead.report(asking(1, want=8), places)
    assert first is not None
    assert first.limit == 8
    second = await alive.report(asking(1, want=10), places)
    assert second is not None
    assert second.limit == 2
    for sequence in range(2, 200):
        reply = await alive.report(asking(sequence, used=2, want=8), places)
        assert reply is not None
        if reply.limit == 10:
            break
        await asyncio.sleep(0.02)
    assert reply is not None
    assert (reply.limit, reply.workers) == (10, 1)


async def test_one_that_leaves_gives_all_back_at_once(redis: Redis) -> None:
    pool, places = f"queue-{uuid4().hex}", Places(10, 2)
    one, other = (RedisExchange(redis, pool=pool) for _ in range(2))
    await one.report(asking(1, want=10), places)
    await one.leave()
    reply = await other.report(asking(1, want=10), places)
    assert reply is not None
    assert reply.limit == 10


async def test_an_older_report_is_not_heard(redis: Redis) -> None:
    pool, places = f"queue-{uuid4().hex}", Places(10, 2)
    one = RedisExchange(redis, pool=pool)
    assert await one.report(asking(2, want=10), places) is not None
    assert await one.report(asking(1, want=1), places) is None
    other = await RedisExchange(redis, pool=pool).report(asking(1, want=1), places)
    assert other is not None
    assert other.limit == 0


LINE_STEP = st.tuples(st.integers(0, 2), st.integers(1, 5_000), st.integers(0, 5_000), st.booleans())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINE_STEP, max_size=14))
def test_a_tenants_line_moves_with_reserve_and_settle_as_its_twin_says(
    redis_url: str, steps: list[tuple[int, int, int, bool]]
) -> None:
    asyncio.run(_reserve_and_settle(redis_url, steps))


async def _reserve_and_settle(url: str, steps: list[tuple[int, int, int, bool]]) -> None:
    redis = connect(url)
    limiter, lines, who = Limiter(redis, lease_s=60), Lines(), principal()
    open_: dict[int, tuple[object, Ticket, Ticket]] = {}
    for number, (slot, tokens, floor, served) in enumerate(steps):
        if slot in open_:
            held, ticket, twin = open_.pop(slot)
            ticket.served = twin.served = served
            used = min(tokens, twin.tokens)
            assert await limiter.settle(held, Used(used))  # type: ignore[arg-type]  # a Reservation
            assert not await limiter.settle(held, Used(used))  # type: ignore[arg-type]  # the same
            lines.settle("a", twin, used)
            assert ticket.credit_after == twin.credit_after
        else:
            ticket, twin = Ticket(1, tokens, float(floor)), Ticket(1, tokens, float(floor))
            held = await limiter.admit(who, f"{uuid4()}-{number}")
            await limiter.reserve(held, Tokens(tokens, 0), ticket)
            lines.enter("a", twin)
            assert (ticket.tag, ticket.credit) == (twin.tag, twin.credit)
            open_[slot] = (held, ticket, twin)
    await redis.aclose()


def principal() -> Principal:
    return Principal(
        tenant=TenantId(uuid4()),
        tenant_name="acme",
        key_id="k1",
        scopes=frozenset(),
        tenant_limits=Limits(),
        key_limits=Limits(),
        salt="salt",
        epoch=1,
    )


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


async def test_two_queues_over_a_real_redis_never_pass_the_places(redis: Redis) -> None:
    pool = f"queue-{uuid4().hex}"
    queues = [FairQueue(QueueLimits(), capacity=8) for _ in range(2)]
    for queue in queues:
        queue.share(RedisExchange(redis, pool=pool), workers=2, loads=dict, heard=lambda _: None)
    runs = [asyncio.create_task(queue.run()) for queue in queues]
    running = most = served = 0

    async def one(queue: FairQueue, tenant: TenantId) -> None:
        nonlocal running, most, served
        place: Place = await queue.enter(Ask(tenant, queue.ticket("standard", 100)))
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        served += 1
        place.leave(50)

    tenants = [TenantId(uuid4()) for _ in range(3)]
    await asyncio.gather(*(one(queues[n % 2], tenants[n % 3]) for n in range(300)))
    assert served == 300
    assert 8 <= most <= 8 + 2
    assert [queue.running for queue in queues] == [0, 0]
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    assert await redis.hlen(f"{{motet-{pool}}}:workers") == 0
