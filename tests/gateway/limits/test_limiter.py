"""The limits against a real Redis: all or nothing, exactly once, and never more than what was promised."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from gateway.errors import RateLimited, Unavailable
from gateway.ids import uuid7
from gateway.limits.amounts import Tokens, Used
from gateway.limits.limiter import Limiter
from gateway.limits.redis_store import REMEMBER_MS, RedisStore, reservation_key
from gateway.limits.reservation import Reservation
from gateway.principal import Limits, Principal
from gateway.redis import TenantKeys, connect

MakePrincipal = Callable[..., Principal]
Picture = dict[str | bytes, bytes | None]


async def picture(redis: Redis) -> Picture:
    """Every key of a tenant with its serialized value."""
    keys = [key for key in await redis.keys("*") if not str(key).startswith("b'{motet-")]
    return {key: await redis.dump(key) for key in keys}


async def try_admit(limiter: Limiter, who: Principal, request: str, tokens: int) -> Reservation | None:
    try:
        reservation = await limiter.admit(who, request)
        await limiter.reserve(reservation, Tokens(tokens))
    except RateLimited:
        return None
    return reservation


async def test_200_parallel_requests_never_pass_a_thousand_tokens(
    limiter: Limiter, principal: MakePrincipal
) -> None:
    who = principal(key=Limits(tokens_per_minute=1000))
    loop = asyncio.get_running_loop()
    began = loop.time()
    answers = await asyncio.gather(*(try_admit(limiter, who, f"r{i}", 30) for i in range(200)))
    refill = (loop.time() - began) * 1000 / 60
    admitted = sum(30 for a in answers if a is not None)
    assert 1000 - 30 < admitted <= 1000 + refill


async def test_a_refusal_for_tokens_changes_no_key(
    limiter: Limiter, redis: Redis, principal: MakePrincipal
) -> None:
    limits = Limits(requests_per_minute=100, tokens_per_minute=1000, max_parallel=10)
    who = principal(tenant=limits, key=replace(limits, tokens_per_minute=500))
    assert await try_admit(limiter, who, "first", 450)
    before = await picture(redis)
    assert await try_admit(limiter, who, "second", 450) is None
    assert await picture(redis) == before


@pytest.mark.parametrize("full", ["requests_per_minute", "max_parallel"])
@pytest.mark.parametrize("level", ["tenant", "key"])
async def test_a_refusal_at_the_door_changes_no_key(
    limiter: Limiter, redis: Redis, principal: MakePrincipal, full: str, level: str
) -> None:
    roomy = Limits(requests_per_minute=100, tokens_per_minute=1000, max_parallel=10)
    tight = replace(roomy, **{full: 1})
    who = principal(**{"tenant": roomy, "key": roomy} | {level: tight})
    await limiter.admit(who, "first")
    before = await picture(redis)
    with pytest.raises(RateLimited) as refused:
        await limiter.admit(who, "second")
    assert await picture(redis) == before
    assert f"of this {level}" in refused.value.message
    assert "limit 1, needed 1, available 0" in refused.value.message
    assert int(refused.value.headers["retry-after"]) >= 1
    assert int(refused.value.headers["retry-after-ms"]) >= 1


async def test_waiting_as_told_is_enough(limiter: Limiter, principal: MakePrincipal) -> None:
    who = principal(key=Limits(requests_per_minute=60, tokens_per_minute=60_000))
    first = await limiter.admit(who, "first")
    await limiter.reserve(first, Tokens(60_000))
    second = await limiter.admit(who, "second")
    with pytest.raises(RateLimited) as refused:
        await limiter.reserve(second, Tokens(300))
    await asyncio.sleep(int(refused.value.headers["retry-after-ms"]) / 1000)
    third = await limiter.admit(who, "third")
    await limiter.reserve(third, Tokens(300))
    assert third.tokens.total == 300


async def test_settling_gives_back_what_was_not_used(
    limiter: Limiter, redis: Redis, principal: MakePrincipal
) -> None:
    who = principal(key=Limits(tokens_per_minute=1000, max_parallel=1))
    first = await try_admit(limiter, who, "first", 1000)
    assert first is not None
    assert await limiter.settle(first, Used(100))
    second = await limiter.admit(who, "second")  # the place is free before this call
    await limiter.reserve(second, Tokens(900))
    assert int(second.headers["x-ratelimit-remaining-tokens"]) <= 1
    assert await limiter.settle(second, Used(900))
    assert not await limiter.settle(second)


async def test_more_than_a_bucket_holds_passes_when_it_is_full_and_is_owed(
    limiter: Limiter, principal: MakePrincipal
) -> None:
    who = principal(key=Limits(tokens_per_minute=100))
    big = await try_admit(limiter, who, "big", 1_024)
    assert big is not None
    assert await try_admit(limiter, who, "next", 1) is None
    await limiter.settle(big, Used(60))
    assert await try_admit(limiter, who, "big again", 1_024) is None
    assert await try_admit(limiter, who, "small", 40) is not None


async def test_headers_speak_openais_form(limiter: Limiter, principal: MakePrincipal) -> None:
    who = principal(tenant=Limits(requests_per_minute=60), key=Limits(tokens_per_minute=60_000))
    reservation = await try_admit(limiter, who, "r", 100)
    assert reservation is not None
    reset = reservation.headers.pop("x-ratelimit-reset-requests")  # refills since the door
    assert reset == "1s" or re.fullmatch(r"\d{1,3}ms", reset)
    assert reservation.headers == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-limit-tokens": "60000",
        "x-ratelimit-remaining-tokens": "59900",
        "x-ratelimit-reset-tokens": "100ms",
    }


async def test_a_dead_workers_lease_runs_out(redis: Redis, principal: MakePrincipal) -> None:
    who = principal(key=Limits(max_parallel=1))
    await Limiter(redis, lease_s=0.2).admit(who, "of a worker that dies")
    alive = Limiter(redis, lease_s=0.2)
    with pytest.raises(RateLimited):
        await alive.admit(who, "too early")
    await asyncio.sleep(0.25)
    assert (await alive.admit(who, "later")).request_id == "later"


async def test_what_a_live_worker_holds_is_told_from_what_a_dead_one_left(
    limiter: Limiter, redis: Redis, principal: MakePrincipal
) -> None:
    who, store = principal(), RedisStore(redis, lease_s=60)
    held, left, never = uuid7(), uuid7(), uuid7()
    await limiter.admit(who, str(held))
    await limiter.admit(who, str(left))
    await redis.pexpire(reservation_key(TenantKeys(who.tenant), str(left)), REMEMBER_MS - 31_000)
    assert await store.held([(who.tenant, each) for each in (held, left, never)]) == {held}


async def test_a_live_workers_lease_is_renewed(redis: Redis, principal: MakePrincipal) -> None:
    who = principal(key=Limits(max_parallel=1))
    limiter = Limiter(redis, lease_s=0.3)
    renewing = asyncio.create_task(limiter.run())
    held = await limiter.admit(who, "long")
    await asyncio.sleep(0.7)
    with pytest.raises(RateLimited):
        await limiter.admit(who, "other")
    await limiter.settle(held)
    assert (await limiter.admit(who, "next")).request_id == "next"
    renewing.cancel()


async def test_a_renewal_that_crosses_the_end_takes_no_place(
    limiter: Limiter, redis: Redis, principal: MakePrincipal
) -> None:
    held = await limiter.admit(principal(key=Limits(max_parallel=1)), "short")
    await limiter.settle(held)
    await limiter._renew_one(held)
    assert await picture(redis) == {}


async def test_counting_after_the_end_changes_nothing(
    limiter: Limiter, redis: Redis, principal: MakePrincipal
) -> None:
    who = principal(key=Limits(tokens_per_minute=100, max_parallel=1))
    reservation = await limiter.admit(who, "r")
    await limiter.settle(reservation)
    before = await picture(redis)
    with pytest.raises(Unavailable):
        await limiter.reserve(reservation, Tokens(10))
    assert await picture(redis) == before == {}


async def test_the_epoch_comes_with_every_answer(
    limiter: Limiter, redis: Redis, principal: MakePrincipal
) -> None:
    who = principal()
    reservation = await limiter.admit(who, "r")
    assert reservation.epoch == who.epoch
    await redis.set(reservation.plan.tenant.epoch, 7)
    await limiter.reserve(reservation, Tokens(1))
    assert reservation.epoch == 7


@pytest.mark.parametrize("what", ["requests_per_minute", "tokens_per_minute", "max_parallel"])
async def test_a_limit_of_nothing_lets_nothing_pass(
    limiter: Limiter, redis: Redis, principal: MakePrincipal, what: str
) -> None:
    who = principal(key=Limits(**{what: 0}))
    with pytest.raises(RateLimited, match="of this key is 0"):
        await limiter.admit(who, "r")
    assert await picture(redis) == {}


async def test_a_redis_that_hung_keeps_no_place_once_it_is_back(
    redis_url: str, redis: Redis, principal: MakePrincipal
) -> None:
    """What it is told while it hangs it carries out later, for requests that are gone."""
    client = connect(redis_url, timeout_s=0.3)
    limiter = Limiter(client, lease_s=60)
    who = principal(tenant=Limits(max_parallel=8, tokens_per_minute=100))
    held = await limiter.admit(who, "held")
    await limiter.reserve(held, Tokens(60))
    pid = (await redis.info("server"))["process_id"]
    os.kill(pid, signal.SIGSTOP)
    try:
        beside = await limiter.admit(who, "let in by this worker's share")
        assert not await limiter.settle(held, Used(10))
        assert await limiter.settle(beside)
    finally:
        os.kill(pid, signal.SIGCONT)
    running = asyncio.create_task(limiter.run())
    for _ in range(200):
        await asyncio.sleep(0.05)
        if not await redis.keys(f"{{{who.tenant}}}:*reservation*"):
            break
    running.cancel()
    assert await redis.zcard(held.plan.door_leases[0].key) == 0
    assert await try_admit(limiter, who, "next", 85) is not None  # only what was used is gone
    await client.aclose()
