"""A Redis that is stopped: a worker's share of each limit, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis

from deploy.local.services import EmbeddedRedis
from gateway.errors import RateLimited
from gateway.limits.amounts import Tokens, Used
from gateway.limits.levels import plan_of, today
from gateway.limits.limiter import Limiter
from gateway.limits.metrics import LOCAL
from gateway.limits.reservation import Reservation
from gateway.principal import Limits, Principal
from gateway.redis import connect
from tests.gateway.limits.conftest import MakePrincipal

WORKERS = 3


@dataclass
class Stage:
    server: EmbeddedRedis
    redis: Redis
    limiter: Limiter

    def stop(self) -> None:
        self.server.stop()

    async def start(self) -> None:
        """And wait until the limits are shared again."""
        await asyncio.to_thread(self.server.restart)
        for _ in range(400):
            await asyncio.sleep(0.02)
            if self.limiter._outage.local is None:
                return
        raise AssertionError("the limits were not shared again")

    async def missing(self, who: Principal, at: int = 0) -> float:
        """Tokens that lack in the plan's bucket in Redis."""
        bucket = plan_of(who, today()).buckets[at]
        seconds, micros = await self.redis.time()
        full_at = await self.redis.get(bucket.key)
        debt_us = max(0, int(full_at) - seconds * 1_000_000 - micros) if full_at else 0
        return debt_us * bucket.limit / 60e6


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    server = EmbeddedRedis(tmp_path)
    redis = connect(await asyncio.to_thread(server.start), timeout_s=0.5)
    limiter = Limiter(redis, lease_s=0.6, workers=lambda: WORKERS)
    running = asyncio.create_task(limiter.run())
    yield Stage(server, redis, limiter)
    running.cancel()
    await asyncio.wait({running})
    await redis.aclose()
    await asyncio.to_thread(server.stop)


async def let_in(limiter: Limiter, who: Principal, tokens: int, name: str) -> list[Reservation]:
    """As many as there may be."""
    found: list[Reservation] = []
    while True:
        try:
            reservation = await limiter.admit(who, f"{name}{len(found)}")
            await limiter.reserve(reservation, Tokens(tokens))
        except RateLimited:
            return found
        found.append(reservation)


async def test_a_worker_keeps_to_its_share_and_charges_it_when_redis_is_back(
    stage: Stage, principal: Callable[..., Principal]
) -> None:
    who = principal(tenant=Limits(tokens_per_minute=60_000), key=Limits(max_parallel=60))
    before = await let_in(stage.limiter, principal(key=Limits(max_parallel=2)), 1, "other")
    assert len(before) == 2
    stage.stop()
    during = await let_in(stage.limiter, who, 1_000, "during")
    share = 60_000 // (2 * WORKERS) // 1_000
    assert share <= len(during) <= share + 1  # some flows back meanwhile
    assert LOCAL._value.get() == 1
    for reservation in during[:4]:
        assert await stage.limiter.settle(reservation, Used(200))
    still = during[4:]
    await stage.start()
    assert LOCAL._value.get() == 0
    owed = 4 * 200 + 1_000 * len(still)
    missing = await stage.missing(who)
    assert owed - 1_000 * 3 < missing <= owed + 10  # of its own share, it flowed back more slowly
    key = plan_of(who, today()).door_leases[0].key
    assert await stage.redis.zcard(key) == len(still)  # they hold their places again
    for reservation in still:
        assert await stage.limiter.settle(reservation, Used(0))
    assert await stage.redis.zcard(key) == 0
    assert await stage.missing(who) <= 4 * 200 + 10


async def test_no_burst_follows(stage: Stage, principal: MakePrincipal) -> None:
    """In the minute around the outage nobody gets more than a full bucket and what flowed back."""
    who = principal(key=Limits(tokens_per_minute=6_000))
    loop = asyncio.get_running_loop()
    began = loop.time()
    before = await let_in(stage.limiter, who, 1_000, "before")
    stage.stop()
    during = await let_in(stage.limiter, who, 500, "during")
    assert during
    await stage.start()
    after = await let_in(stage.limiter, who, 100, "after")
    admitted = 1_000 * len(before) + 500 * len(during) + 100 * len(after)
    share = 6_000 // (2 * WORKERS)
    assert admitted <= 6_000 + share + (loop.time() - began) * 100 + 100


async def test_places_taken_before_count_against_the_share(stage: Stage, principal: MakePrincipal) -> None:
    who = principal(key=Limits(max_parallel=18))
    held = [await stage.limiter.admit(who, f"held{at}") for at in range(2)]
    stage.stop()
    assert len(await let_in(stage.limiter, who, 1, "during")) == 18 // (2 * WORKERS) - len(held)
    await stage.limiter.settle(held[0])
    assert len(await let_in(stage.limiter, who, 1, "more")) == 1
    await stage.start()
    await stage.limiter.settle(held[1])
    key = plan_of(who, today()).door_leases[0].key
    assert await stage.redis.zcard(key) == 2


async def test_a_key_with_one_place_is_served_too(stage: Stage, principal: MakePrincipal) -> None:
    who = principal(key=Limits(requests_per_minute=1, max_parallel=1))
    stage.stop()
    (only,) = await let_in(stage.limiter, who, 1, "only")
    assert only.headers["x-ratelimit-limit-requests"] == "1"
    await stage.limiter.settle(only)


async def test_one_that_is_counted_while_redis_goes_is_counted_here(
    stage: Stage, principal: MakePrincipal
) -> None:
    who = principal(key=Limits(tokens_per_minute=60_000, max_parallel=6))
    reservation = await stage.limiter.admit(who, "between")
    stage.stop()
    await stage.limiter.reserve(reservation, Tokens(5_000))
    assert reservation.local
    await stage.start()
    assert not reservation.local
    key = plan_of(who, today()).door_leases[0].key
    assert await stage.redis.zrange(key, 0, -1) == [reservation.id.encode()]  # once, not twice
    assert await stage.limiter.settle(reservation, Used(100))
    assert await stage.missing(who) < 110
    assert await stage.redis.zcard(key) == 0
