"""The scripts and their twin answer alike and keep alike, whatever is asked of them; so what is proved of the
twin holds for the scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from gateway.limits import redis_store
from gateway.limits.amounts import Tokens
from gateway.limits.asks import Answer, Store
from gateway.limits.levels import Plan
from gateway.limits.local_store import LocalStore
from gateway.limits.redis_store import RedisStore
from gateway.redis import Script, connect
from tests.gateway.limits.model import Clock, Interleaving, full_plan

FILES: Final = {
    "ADMIT": ("admit",),
    "RESERVE": ("share", "reserve"),
    "SETTLE": ("share", "settle"),
    "RENEW": ("renew",),
    "LOOK": ("look",),
    "SEED": ("seed",),
    "CHARGE": ("charge",),
}
FOLDER: Final = Path(redis_store.__file__).parent
CLOCK_KEY: Final = "{clock}"
STEP: Final = st.tuples(
    st.sampled_from(["admit", "reserve", "settle", "renew", "charge", "forced"]),
    st.integers(0, 3),  # which request
    st.integers(0, 60_000),  # input tokens
    st.integers(0, 60_000),  # output tokens
    st.integers(0, 6 * 10**11),  # money
    st.sampled_from([0, 1, 999, 1_000_000, 25_000_000, 61_000_000]),  # microseconds that pass first
)


@pytest.fixture(scope="module", autouse=True)
def scripts_by_a_given_clock() -> Iterator[None]:
    """The same scripts; only the time is read from a key."""
    before = {name: getattr(redis_store, name) for name in FILES}
    for name, files in FILES.items():
        paths = [
            FOLDER / "claims.lua",
            *(
                FOLDER.parent / "queueing" / "share.lua" if f == "share" else FOLDER / f"{f}.lua"
                for f in files
            ),
        ]
        source = "".join(path.read_text() for path in paths)
        timed = source.replace("redis.call('TIME')", f"redis.call('LRANGE', '{CLOCK_KEY}', 0, -1)")
        assert timed != source
        kept = timed.replace("/ 1000) + 1000)", "/ 1000) + 1000000)")  # real time must not take keys away
        setattr(redis_store, name, Script(kept))
    yield
    for name, script in before.items():
        setattr(redis_store, name, script)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, min_size=4, max_size=24), soft=st.booleans(), limit=st.integers(7, 200_000))
def test_scripts_and_twin_agree(
    redis_url: str, steps: list[tuple[str, int, int, int, int, int]], soft: bool, limit: int
) -> None:
    plan = full_plan(limit)
    if soft:
        plan = replace(plan, counters=tuple(replace(each, hard=False) for each in plan.counters))
    asyncio.run(_compare(redis_url, plan, steps))


async def _compare(url: str, plan: Plan, steps: list[tuple[str, int, int, int, int, int]]) -> None:
    redis = connect(url)
    try:
        await _play(redis, plan, steps)
    finally:
        await redis.aclose()


async def _play(redis: Redis, plan: Plan, steps: list[tuple[str, int, int, int, int, int]]) -> None:
    await redis.flushdb()
    clock = Clock()
    stores: list[Store] = [RedisStore(redis, lease_s=60), LocalStore(lease_s=60, clock_us=clock)]
    await _set(redis, clock)
    for counter in plan.counters:
        assert len({await store.seed(counter, 3) for store in stores}) == 1
    alive: dict[int, bool] = {}  # whether it has reserved
    answers: list[Any]
    for number, (step, which, more_in, more_out, money, passed) in enumerate(steps):
        clock.us += passed
        await _set(redis, clock)
        id, tokens = f"r{which}", Tokens(more_in, more_out)
        forced = step == "forced"
        if step in ("admit", "forced") and which not in alive:
            answers = [await store.admit(plan, id, forced=forced) for store in stores]
            if answers[0].state == 1:
                alive[which] = False
        elif step in ("reserve", "forced") and not alive.get(which, False):
            answers = [await store.reserve(plan, id, tokens, money, forced=forced) for store in stores]
            alive.pop(which, None)
            if answers[0].state == 1:
                alive[which] = True
        elif step == "settle":
            answers = [await store.settle(plan, id, tokens, money) for store in stores]
            alive.pop(which, None)
        elif step == "charge":
            for store in stores:
                await store.charge([(plan.buckets[0], more_in)])
            answers = []
        else:
            answers = [await store.renew(plan, id, places=more_in % 2 == 0) for store in stores]
        _equal(answers, (number, step))
        _equal([await store.look(plan, tokens, money) for store in stores], (number, "look"))


async def _set(redis: Redis, clock: Clock) -> None:
    seconds, micros = divmod(clock.us, 1_000_000)
    async with redis.pipeline(transaction=True) as pipe:
        pipe.delete(CLOCK_KEY)
        pipe.rpush(CLOCK_KEY, seconds, micros)
        await pipe.execute()


def _equal(answers: list[Any], where: object) -> None:
    """The epoch is Redis's own; what a refusal tells is meant for refusals only."""
    told = [_meant(each) if isinstance(each, Answer) else each for each in answers]
    if told and hasattr(told[0], "answer"):
        told = [(_meant(each.answer), each.running, each.spent) for each in told]
    assert all(each == told[0] for each in told), (where, told)


def _meant(answer: Answer) -> Any:
    if answer.state == 1:
        return answer.state, answer.left
    return answer.state, answer.which, answer.available, answer.wait_us, answer.left


@pytest.mark.parametrize("still", [True, False])
def test_every_interleaving_gives_back_exactly_once(still: bool) -> None:
    for seed in range(1_000):
        Interleaving(seed, still).run()
