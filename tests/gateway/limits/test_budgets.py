"""Money budgets against a real Redis: never more than the limit, exact to the last digit, and not lost with
Redis's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from gateway.billing.money import UNITS
from gateway.billing.price_book.prices import ModelKind, PriceRow, Selector
from gateway.catalog.resolved import Resolved
from gateway.errors import RateLimited, Unavailable
from gateway.limits.amounts import Tokens, Used
from gateway.limits.levels import Counter, plan_of, today
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import Reservation
from gateway.principal import Budget, Limits, Period, Principal
from gateway.redis import connect

MakePrincipal = Callable[..., Principal]
BASE = Resolved("base", "b" * 64, None)
PRICE = PriceRow(
    id=uuid4(),
    kind=ModelKind.BASE,
    base_id=None,
    owner_id=None,
    adapter_name=None,
    service_class=None,
    input=3,
    cached_input=1,
    output=7_000_000_001,  # 0.007 and a bit
    answer_input=2,
    answer_output=5,
)


@dataclass
class Charges:
    """Stands for the price book and the charges."""

    price: PriceRow | None = PRICE
    charged: dict[str, int] = field(default_factory=dict)  # by limit id

    def price_of(self, selector: Selector) -> PriceRow | None:
        assert selector == Selector(BASE.base_id, None, None, "standard")
        return self.price

    async def spent(self, counter: Counter) -> int:
        return self.charged.get(counter.id, 0)


@pytest.fixture
def charges() -> Charges:
    return Charges()


@pytest.fixture
def limiter(redis: Redis, charges: Charges) -> Limiter:
    return Limiter(redis, lease_s=60, spending=charges)


def with_budget(who: Principal, amount: int, *, hard: bool = True, **more: bool) -> Principal:
    return replace(who, budgets=(Budget(more.get("of_key", True), Period.MONTH, amount, hard),))


async def begin(limiter: Limiter, who: Principal, name: str, output: int) -> Reservation:
    reservation = await limiter.admit(who, name)
    reservation.for_model(BASE)
    try:
        await limiter.reserve(reservation, Tokens(10, output))
    except Unavailable:
        await limiter.settle(reservation)
        raise
    return reservation


async def spent(limiter: Limiter, who: Principal) -> tuple[int, int]:
    """(settled, reserved) of the only budget."""
    (found,) = (await limiter.look(plan_of(who, today()))).spent
    assert found is not None
    return found


async def test_the_worst_is_reserved_and_the_real_price_stays(
    limiter: Limiter, principal: MakePrincipal
) -> None:
    who = with_budget(principal(), UNITS)
    held = await begin(limiter, who, "r", 100)
    assert await spent(limiter, who) == (0, 10 * 3 + 100 * 7_000_000_001)
    assert await limiter.settle(held, Used(10, 4, cached=6))
    assert not await limiter.settle(held, Used(10, 4, cached=6))
    real = 4 * 3 + 6 * 1 + 4 * 7_000_000_001
    assert await spent(limiter, who) == (real, 0)


async def test_a_spent_budget_refuses_for_good(
    limiter: Limiter, redis: Redis, principal: MakePrincipal
) -> None:
    who = with_budget(principal(), UNITS)  # 142 tokens
    held = await begin(limiter, who, "r", 100)
    before = {key: await redis.dump(key) for key in await redis.keys("*")}
    with pytest.raises(RateLimited) as refused:
        await begin(limiter, who, "s", 43)
    assert {key: await redis.dump(key) for key in await redis.keys("*")} == before
    error = refused.value
    assert (error.status, error.code, error.type) == (429, "insufficient_quota", "insufficient_quota")
    assert error.headers["x-should-retry"] == "false"
    limit = error.details["limit"]
    assert isinstance(limit, dict)
    assert limit["limit_id"] == "key.budget_month"
    assert limit["limit"] == "1"
    assert limit["needed"] == "0.301000000073"
    assert limit["available"] == "0.29999999987"
    assert limit["refill_at"].endswith("-01T00:00:00.000000Z")
    await limiter.settle(held, Used(10, 100))
    assert await begin(limiter, who, "t", 42)
    with pytest.raises(RateLimited):
        await begin(limiter, who, "u", 1)


async def test_one_that_has_nothing_left_is_refused_at_the_door(
    limiter: Limiter, charges: Charges, principal: MakePrincipal
) -> None:
    who = with_budget(principal(), UNITS)
    charges.charged["key.budget_month"] = UNITS
    with pytest.raises(RateLimited):
        await begin(limiter, who, "first of the period", 1)
    with pytest.raises(RateLimited, match="budget of this key for this month is spent"):
        await limiter.admit(who, "at the door")


async def test_200_parallel_requests_never_pass_a_budget(limiter: Limiter, principal: MakePrincipal) -> None:
    who = with_budget(principal(), UNITS, of_key=False)
    answers = await asyncio.gather(
        *(begin(limiter, who, f"r{at}", 10) for at in range(200)), return_exceptions=True
    )
    held = [each for each in answers if isinstance(each, Reservation)]
    assert len(held) == 14  # of 0.07 and a bit each
    await asyncio.gather(*(limiter.settle(each, Used(10, 10)) for each in held))
    assert await spent(limiter, who) == (14 * (30 + 10 * 7_000_000_001), 0)


async def test_money_beyond_what_a_double_holds_is_exact(limiter: Limiter, principal: MakePrincipal) -> None:
    who = with_budget(principal(), 10**11 * UNITS + 1, hard=True)
    limiter._spending.charged = {"key.budget_month": 10**11 * UNITS - 7_000_000_031}  # type: ignore[union-attr]
    held = await begin(limiter, who, "r", 1)
    assert await spent(limiter, who) == (10**11 * UNITS - 7_000_000_031, 7_000_000_031)
    with pytest.raises(RateLimited) as refused:
        await begin(limiter, who, "s", 1)
    assert refused.value.details["limit"]["available"] == "0.000000000001"  # type: ignore[index]
    await limiter.settle(held, Used(10, 1))
    assert await spent(limiter, who) == (10**11 * UNITS, 0)


async def test_a_redis_that_lost_its_memory_is_told_what_was_charged(
    limiter: Limiter, redis: Redis, charges: Charges, principal: MakePrincipal
) -> None:
    who = with_budget(principal(), UNITS)
    held = await begin(limiter, who, "r", 100)
    await redis.flushdb()
    charges.charged["key.budget_month"] = UNITS * 9 // 10
    with pytest.raises(RateLimited):
        await begin(limiter, who, "s", 20)
    assert await begin(limiter, who, "t", 10)
    assert not await limiter.settle(held, Used(10, 100))  # the charges will tell of it


async def test_what_a_killed_worker_reserved_comes_back(
    redis: Redis, charges: Charges, principal: MakePrincipal
) -> None:
    who = with_budget(principal(), UNITS)
    await begin(Limiter(redis, lease_s=0.2, spending=charges), who, "of a worker that dies", 100)
    alive = Limiter(redis, lease_s=0.2, spending=charges)
    with pytest.raises(RateLimited):
        await begin(alive, who, "too early", 100)
    await asyncio.sleep(0.25)
    held = await begin(alive, who, "later", 100)
    assert await spent(alive, who) == (0, held.money)


async def test_one_that_outlived_its_lease_counts_once(
    redis: Redis, charges: Charges, principal: MakePrincipal
) -> None:
    who = with_budget(principal(), UNITS)
    slow = Limiter(redis, lease_s=0.1, spending=charges)
    held = await begin(slow, who, "slow", 100)
    await asyncio.sleep(0.15)
    other = await begin(slow, who, "other", 100)  # took away what the first had reserved
    assert await slow.settle(held, Used(10, 1))
    assert await spent(slow, who) == (30 + 7_000_000_001, other.money)


async def test_without_a_price_a_hard_budget_refuses_and_a_soft_one_lets_pass(
    limiter: Limiter, redis: Redis, charges: Charges, principal: MakePrincipal
) -> None:
    charges.price = None
    with pytest.raises(Unavailable) as refused:
        await begin(limiter, with_budget(principal(), UNITS), "r", 1)
    assert refused.value.code == "price_unknown"
    assert await redis.keys("*reservation*") == []
    soft = with_budget(principal(), 1, hard=False)
    held = await begin(limiter, soft, "s", 1)
    await limiter.settle(held, Used(1, 1))


async def test_a_soft_budget_counts_and_never_refuses(limiter: Limiter, principal: MakePrincipal) -> None:
    who = with_budget(principal(), 1, hard=False)
    for at in range(3):
        await limiter.settle(await begin(limiter, who, f"r{at}", 10), Used(10, 10))
    assert await spent(limiter, who) == (3 * (30 + 10 * 7_000_000_001), 0)


async def test_an_answer_out_of_the_cache_costs_its_own_price_and_no_tokens(
    limiter: Limiter, principal: MakePrincipal
) -> None:
    who = with_budget(principal(), UNITS)
    await limiter.settle(await begin(limiter, who, "makes the period known", 1))
    hit = await limiter.admit(who, "hit")
    hit.for_model(BASE)
    assert await limiter.settle(hit, Used(10, 10, source="cache"))
    assert await spent(limiter, who) == (10 * 2 + 10 * 5, 0)


async def test_200_answers_out_of_the_cache_never_pass_a_budget(
    limiter: Limiter, principal: MakePrincipal
) -> None:
    used = Used(10, 10, source="cache")  # 70 units
    who = with_budget(principal(), 3 * 70 + 1)

    async def hit(name: str) -> Reservation:
        held = await limiter.admit(who, name)
        held.for_model(BASE)
        await limiter.reserve_kept(held, used)
        return held

    answers = await asyncio.gather(*(hit(f"r{at}") for at in range(200)), return_exceptions=True)
    held = [each for each in answers if isinstance(each, Reservation)]
    assert len(held) == 3
    assert await spent(limiter, who) == (0, 3 * 70)
    assert all([await limiter.settle(each, used) for each in held])
    assert await spent(limiter, who) == (3 * 70, 0)


async def test_what_runs_is_counted_again_by_a_redis_that_was_emptied(
    limiter: Limiter, redis: Redis, charges: Charges, principal: MakePrincipal
) -> None:
    limits = Limits(max_parallel=1, tokens_per_minute=1_000, requests_per_minute=1_000)
    who = with_budget(principal(key=limits), UNITS)
    held = await begin(limiter, who, "r", 100)
    waiting = await limiter.admit(replace(who, key_limits=Limits()), "not counted yet")
    await redis.flushdb()
    for each in (held, waiting):
        await limiter._renew_one(each)
    assert await spent(limiter, who) == (0, held.money)
    with pytest.raises(RateLimited, match="requests at a time"):
        await limiter.admit(who, "s")
    assert await limiter.settle(waiting)
    assert await limiter.settle(held, Used(10, 1))
    assert await spent(limiter, who) == (30 + 7_000_000_001, 0)
    assert (await limiter.admit(who, "t")).request_id == "t"


async def test_what_a_long_request_reserved_outlives_the_sets_of_other_requests(
    limiter: Limiter, redis: Redis, principal: MakePrincipal
) -> None:
    """Nobody else reserves meanwhile: its renewals alone keep the set."""
    who = with_budget(principal(), UNITS)
    held = await begin(limiter, who, "long", 100)
    (counter,) = held.plan.counters
    await redis.pexpire(counter.holds, 60_000)
    await limiter._renew_one(held)
    assert await redis.pttl(counter.holds) > 60_000
    assert await limiter.settle(held, Used(10, 1))
    assert await spent(limiter, who) == (30 + 7_000_000_001, 0)


async def test_while_redis_is_away_a_part_of_what_the_charges_left_may_be_spent(
    charges: Charges, principal: MakePrincipal
) -> None:

    away = connect("redis://127.0.0.1:1/0", timeout_s=0.2)
    limiter = Limiter(away, lease_s=60, spending=charges, workers=lambda: 2)
    charges.charged["key.budget_month"] = UNITS // 5
    who = with_budget(principal(), UNITS)  # 0.8 left, a quarter of it here: 28 tokens
    await begin(limiter, who, "r", 28)
    with pytest.raises(RateLimited):
        await begin(limiter, who, "s", 1)
    await away.aclose()
