"""What is kept of a tenant stays within its bounds, whatever comes, and is dropped whole."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr
from redis.asyncio import Redis

from gateway.answers.answer import Answer, Recording
from gateway.answers.sealing import DataKeys
from gateway.answers.shelf import Bounds
from gateway.inference import response_cache
from gateway.inference.response_cache import ResponseCache
from gateway.inference.response_cache_key import CacheKey
from gateway.principal import TenantId
from gateway.redis import connect
from gateway.replicas.driver import EngineTimings, EngineUsage, Trailer

KEYS = DataKeys(SecretStr("data-key-" * 4))
TRAILER = Trailer(EngineUsage(7, 4, 0), EngineTimings(), "finished")


@pytest.fixture
async def cache(redis: Redis) -> ResponseCache:
    return ResponseCache(redis, KEYS, entry_bytes=2_000, tenant_bytes=4_000)


def answer(num_bytes: int) -> Answer:
    recording = Recording("r", {}, 10_000)
    recording.take(b"x" * num_bytes)
    made = recording.answer(False, "application/json", b"", TRAILER)
    assert made is not None
    return made


def key(tenant: TenantId, name: str, age_s: int = 60) -> CacheKey:
    return CacheKey(tenant, name, "d", age_s)


async def lying(redis: Redis, tenant: TenantId) -> tuple[set[str], int]:
    """Names that are there, and what the sum says."""
    found: Any = await redis.keys(f"{{{tenant}}}:response:*")
    names = {name.decode().rpartition(":")[2] for name in found}
    return names, int(await redis.get(f"{{{tenant}}}:response-bytes") or 0)


async def test_the_oldest_make_room(cache: ResponseCache, redis: Redis) -> None:
    tenant = TenantId(uuid4())
    for number in range(6):
        assert await cache.keep(key(tenant, f"n{number}"), answer(1_000))
    names, total = await lying(redis, tenant)
    assert names == {"n3", "n4", "n5"}
    assert total == sum([await redis.strlen(f"{{{tenant}}}:response:{name}") for name in names])
    assert await cache.find(key(tenant, "n5")) == answer(1_000)
    assert await cache.find(key(tenant, "n0")) is None


async def test_one_that_is_too_large_moves_nobody(cache: ResponseCache, redis: Redis) -> None:
    tenant = TenantId(uuid4())
    await cache.keep(key(tenant, "small"), answer(10))
    assert not await cache.keep(key(tenant, "large"), answer(3_000))
    assert (await lying(redis, tenant))[0] == {"small"}


async def test_the_first_answer_of_a_name_stands(cache: ResponseCache, redis: Redis) -> None:
    tenant = TenantId(uuid4())
    assert await cache.keep(key(tenant, "n"), answer(10))
    assert not await cache.keep(key(tenant, "n"), answer(20))
    assert await cache.find(key(tenant, "n")) == answer(10)
    assert await redis.zcard(f"{{{tenant}}}:response-index") == 1


async def test_it_grows_old(cache: ResponseCache, redis: Redis) -> None:
    tenant = TenantId(uuid4())
    await cache.keep(key(tenant, "n", age_s=60), answer(10))
    assert 0 < await redis.pttl(f"{{{tenant}}}:response:n") <= 60_000
    for what in ("index", "bytes"):  # nothing of a tenant that left stays behind
        assert 0 < await redis.pttl(f"{{{tenant}}}:response-{what}") <= 120_000


async def test_a_drop_takes_all_of_one_tenant(cache: ResponseCache, redis: Redis) -> None:
    mine, others = TenantId(uuid4()), TenantId(uuid4())
    roomy = ResponseCache(redis, KEYS, entry_bytes=2_000, tenant_bytes=1_000_000)
    for number in range(150):
        await roomy.keep(key(mine, f"n{number}"), answer(10))
    await roomy.keep(key(others, "n1"), answer(10))
    assert await response_cache.drop(redis, mine) == 150
    assert await redis.keys(f"{{{mine}}}:*") == []
    assert await cache.find(key(others, "n1")) is not None


async def test_what_is_not_ours_is_a_miss(cache: ResponseCache, redis: Redis) -> None:
    tenant = TenantId(uuid4())
    await redis.set(f"{{{tenant}}}:response:n", b"nonsense", px=60_000)
    assert await cache.find(key(tenant, "n")) is None


async def test_a_redis_that_is_away_is_a_miss() -> None:
    away = connect("redis://127.0.0.1:1/0", timeout_s=0.2)
    cache = ResponseCache(away, KEYS, entry_bytes=2_000, tenant_bytes=4_000)
    tenant = TenantId(uuid4())
    assert await cache.find(key(tenant, "n")) is None
    assert not await cache.keep(key(tenant, "n"), answer(10))
    await away.aclose()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 1_800)), max_size=30), seed=st.integers())
def test_the_bounds_hold_after_every_step(redis_url: str, sizes: list[tuple[int, int]], seed: int) -> None:
    async def play() -> None:
        redis, dice, tenant = connect(redis_url), random.Random(seed), TenantId(uuid4())
        cache = ResponseCache(redis, KEYS, entry_bytes=2_000, tenant_bytes=4_000)
        cache.bounds = Bounds(3, 4_000, 2_000)
        for number, size in sizes:
            await cache.keep(key(tenant, f"n{number}"), answer(size))
            if dice.random() < 0.1:  # Redis forgets one by itself
                await redis.delete(f"{{{tenant}}}:response:n{dice.randrange(9)}")
            names, total = await lying(redis, tenant)
            held = sum([await redis.strlen(f"{{{tenant}}}:response:{name}") for name in names])
            assert len(names) <= 3
            assert held <= total <= 4_000
        await redis.aclose()

    asyncio.run(play())
