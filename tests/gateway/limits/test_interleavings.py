"""Whatever order finish, disconnect, crash and late calls come in, a reservation is given back exactly
once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from gateway.errors import RateLimited, Unavailable
from gateway.limits.amounts import Tokens, Used
from gateway.limits.limiter import Limiter
from gateway.principal import Limits, Principal
from gateway.redis import connect

LIMIT = 1_000_000  # 60 us a token, so that refill during an example is known to be small
STEP = st.tuples(
    st.sampled_from(["admit", "reserve", "settle", "crash"]), st.integers(0, 3), st.integers(0, 50_000)
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=24), seed=st.integers(0, 2**32))
def test_places_and_tokens_add_up(
    redis_url: str, principal: Callable[..., Principal], steps: list[tuple[str, int, int]], seed: int
) -> None:
    asyncio.run(_play(redis_url, principal(key=Limits(tokens_per_minute=LIMIT, max_parallel=3)), steps, seed))


async def _play(url: str, who: Principal, steps: list[tuple[str, int, int]], seed: int) -> None:
    redis = connect(url)
    limiter = Limiter(redis, lease_s=60)
    alive: dict[int, object] = {}
    charged = 0
    reserved: dict[int, int] = {}
    for number, (step, slot, tokens) in enumerate(steps):
        held = alive.get(slot)
        if step == "admit" and held is None:
            try:
                alive[slot] = await limiter.admit(who, f"{seed}-{number}")
            except RateLimited:
                assert len(alive) >= 3
        elif step == "reserve" and held is not None and slot not in reserved:
            try:
                await limiter.reserve(held, Tokens(tokens))  # type: ignore[arg-type]  # a Reservation or None, see above
                reserved[slot] = tokens
            except RateLimited:
                del alive[slot]
        elif step == "settle" and held is not None:
            used = min(tokens, reserved.pop(slot, 0))
            ended = await asyncio.gather(
                *(limiter.settle(held, Used(used)) for _ in range(random.Random(seed).randint(1, 3)))  # type: ignore[arg-type]  # same
            )
            assert sum(ended) == 1
            charged += used
            del alive[slot]
        elif step == "crash" and held is not None:
            await redis.zrem(held.plan.door_leases[0].key, held.request_id)  # type: ignore[attr-defined]  # what expiry does
            charged += reserved.pop(slot, 0)  # stays charged, as stated
            del alive[slot]
        assert await redis.zcard(_leases(who)) == len(alive)
        await _check(redis, who, charged + sum(reserved.values()))
    await redis.aclose()


def _leases(who: Principal) -> str:
    return f"{{{who.tenant}}}:key:{who.key_id}:leases"


async def _check(redis: Redis, who: Principal, owed: int) -> None:
    """The bucket lacks exactly what is charged and reserved, less what has flowed back."""
    seconds, micros = await redis.time()
    full_at = await redis.get(f"{{{who.tenant}}}:key:{who.key_id}:tokens")
    missing = max(0, int(full_at) - (seconds * 1_000_000 + micros)) / 60 if full_at else 0
    assert missing <= owed
    assert missing >= owed - 2.0 * LIMIT / 60  # an example runs for less than two seconds


async def test_finish_and_disconnect_race(redis: Redis, principal: Callable[..., Principal]) -> None:
    limiter = Limiter(redis, lease_s=60)
    who = principal(tenant=Limits(tokens_per_minute=LIMIT, max_parallel=64))
    for round_ in range(50):
        reservation = await limiter.admit(who, f"r{round_}")
        calls = [
            limiter.reserve(reservation, Tokens(500)),
            limiter.settle(reservation, Used(10)),
            limiter.settle(reservation, Used(10)),
        ]
        random.Random(round_).shuffle(calls)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(a is True for a in answers) == 1
        assert all(a is None or isinstance(a, bool | Unavailable) for a in answers)
    assert await redis.zcard(f"{{{who.tenant}}}:leases") == 0
    assert await redis.keys(f"{{{who.tenant}}}:reservation:*") == []
