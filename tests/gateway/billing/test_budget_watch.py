"""Control's look at budgets: counters are raised to what was charged, and thresholds are told once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from redis.asyncio import Redis
from sqlalchemy import select

from gateway.ids import uuid7
from gateway.limits.budget_watch import BudgetWatch
from gateway.limits.columns import budget_of
from gateway.limits.levels import counter_of, today
from gateway.limits.redis_store import RedisStore
from gateway.models import ApiKey, BudgetRow, WebhookEvent
from gateway.principal import TenantId
from gateway.redis import connect
from gateway.webhooks.outbox import publish
from tests.gateway.billing.conftest import Bench, prices, usage

COST = 120_000_000
"""Of one `usage` at 1 a million tokens, in units of 10⁻¹²."""
KEY = "keyofbudgets"


@pytest.fixture
async def store(redis: Redis) -> RedisStore:
    return RedisStore(redis, lease_s=60)


@pytest.fixture
async def away() -> AsyncIterator[RedisStore]:
    client = connect("redis://127.0.0.1:1/0", timeout_s=0.2)
    yield RedisStore(client, lease_s=60)
    await client.aclose()


async def set_budget(bench: Bench, tenant: TenantId, amount: int, **more: Any) -> BudgetRow:
    fields: dict[str, Any] = {
        "key_id": "",
        "period": "month",
        "hard": True,
        "thresholds": [50, 80, 100],
        **more,
    }
    row = BudgetRow(tenant_id=tenant, amount=Decimal(amount), **fields)
    async with bench.db.system_session() as session:
        session.add(row)
    return row


async def spend(bench: Bench, tenant: TenantId, times: int = 1, **more: Any) -> None:
    now = datetime.now(UTC)
    await bench.add(*(usage(tenant, now, **more) for _ in range(times)))
    await bench.charging.run_once()


async def told(bench: Bench, tenant: TenantId) -> list[tuple[Any, ...]]:
    async with bench.db.system_reader() as session:
        found = select(WebhookEvent.data).where(
            WebhookEvent.tenant_id == tenant, WebhookEvent.kind == "budget.threshold"
        )
        events = list(await session.scalars(found.order_by(WebhookEvent.id)))
    return [(each["limit_id"], each["threshold_percent"], each["spent"]) for each in events]


async def settled(store: RedisStore, row: BudgetRow) -> int:
    counter = counter_of(TenantId(row.tenant_id), row.key_id or None, budget_of(row), today())
    found, _ = await store.seed(counter, 0)
    return found


async def test_thresholds_are_told_once_and_counters_follow_the_charges(
    bench: Bench, redis: Redis, store: RedisStore, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    await bench.set_prices(prices())
    tenant, other = await new_tenant(), await new_tenant()
    row = await set_budget(bench, tenant, 2 * COST)
    await set_budget(bench, other, 2 * COST, period="day", hard=False)
    watch = BudgetWatch(bench.db, store, publish)
    assert await watch.run_once() == 0
    await spend(bench, tenant)
    assert await watch.run_once() == 1
    assert await watch.run_once() == 0
    assert await told(bench, tenant) == [("tenant.budget_month", 50, "0.00012")]
    assert await settled(store, row) == COST
    await spend(bench, tenant)
    assert (
        await BudgetWatch(bench.db, store, publish).run_once() == 3
    )  # another leader; the outbox knows the first
    assert [percent for _, percent, _ in await told(bench, tenant)] == [50, 80, 100]
    assert await told(bench, other) == []
    await redis.flushdb()
    await watch.run_once()
    assert await settled(store, row) == 2 * COST


async def test_a_counter_is_never_lowered_and_what_is_not_charged_yet_counts(
    bench: Bench, store: RedisStore, tenant: TenantId
) -> None:
    await bench.set_prices(prices())
    row = await set_budget(bench, tenant, 2 * COST)
    counter = counter_of(tenant, None, budget_of(row), today())
    await store.seed(counter, COST + 5)  # as ends of requests have left it
    await BudgetWatch(bench.db, store, publish).run_once()
    assert await told(bench, tenant) == [("tenant.budget_month", 50, "0.000120000005")]
    assert await settled(store, row) == COST + 5


async def test_a_keys_budget_is_its_own_and_ends_with_the_key(
    bench: Bench, away: RedisStore, tenant: TenantId
) -> None:
    """Redis is away, which keeps nobody from telling."""
    await bench.set_prices(prices())
    key = ApiKey(
        id=uuid7(),
        tenant_id=tenant,
        key_id=KEY,
        name="k",
        secret_hmac=b"\0" * 32,
        pepper_version="p",
        scopes=[],
    )
    async with bench.db.system_session() as session:
        session.add(key)
    await set_budget(bench, tenant, 2 * COST, key_id=KEY)
    watch = BudgetWatch(bench.db, away, publish)
    await spend(bench, tenant, key_id="another")
    assert await watch.run_once() == 0
    await spend(bench, tenant, key_id=KEY)
    assert await watch.run_once() == 1
    assert await told(bench, tenant) == [("key.budget_month", 50, "0.00012")]
    async with bench.db.system_session() as session:
        (await session.get_one(ApiKey, key.id)).revoked_at = datetime.now(UTC)
    await spend(bench, tenant, times=2, key_id=KEY)
    assert await watch.run_once() == 0


async def test_a_budget_that_was_changed_tells_anew(
    bench: Bench, store: RedisStore, tenant: TenantId
) -> None:
    await bench.set_prices(prices())
    row = await set_budget(bench, tenant, 2 * COST, thresholds=[50])
    await spend(bench, tenant)
    watch = BudgetWatch(bench.db, store, publish)
    assert await watch.run_once() == 1
    async with bench.db.system_session() as session:
        (await session.get_one(BudgetRow, (tenant, "", "month"))).amount = Decimal(3 * COST)
    assert await watch.run_once() == 0
    await spend(bench, tenant)
    assert await watch.run_once() == 1
    assert await settled(store, row) == 2 * COST
