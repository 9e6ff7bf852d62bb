"""Ledger rows become charges, exactly, on a real database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import DBAPIError, ProgrammingError

from gateway.billing.charging.schemas import ReRatingIn
from gateway.billing.months import bucket_of
from gateway.errors import NotFound
from gateway.models import AuditEvent, UsageArrival, UsageRollup, UsageUnpriced
from gateway.principal import TenantId
from gateway.usage.repository import insert_events
from tests.gateway.billing.conftest import NOON, NOTHING, OPERATOR, Bench, prices, usage

NewTenant = Callable[[], Awaitable[TenantId]]
PRICE = 1_000_000  # units a token of a price of 1 per million
ONE_REQUEST = 60 * PRICE + 40 * PRICE + 10 * 2 * PRICE


async def test_rows_are_charged_once_however_often_they_come(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices("1"))
    events = [usage(tenant, NOON + timedelta(minutes=7 * n)) for n in range(20)]
    draw = random.Random(3)
    for _ in range(3):
        draw.shuffle(events)
        await bench.add(*events)
        await bench.charging.run_once()
    assert await bench.charging.run_once() == 0
    assert await bench.charged(tenant) == (20 * 60, 20 * 40, 20 * 10, 20 * ONE_REQUEST)
    async with bench.db.system_reader() as session:
        assert await session.scalar(select(func.sum(UsageRollup.requests))) == 20
        assert await session.scalar(select(func.count()).select_from(UsageArrival)) == 0


async def test_late_rows_add_the_difference(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices("1"))
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    await bench.add(usage(tenant, NOON + timedelta(minutes=3)))
    await bench.charging.run_once()
    assert [int(row.amount) for row in await bench.charges(tenant)] == [ONE_REQUEST, ONE_REQUEST]
    assert len({row.bucket for row in await bench.charges(tenant)}) == 1


async def test_what_bills_nothing_costs_nothing_and_is_counted_apart(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices("1"))
    await bench.add(usage(tenant, outcome="failed", **NOTHING), usage(tenant, purpose="probe"))
    await bench.charging.run_once()
    assert await bench.charges(tenant) == []
    async with bench.db.system_reader() as session:
        (rollup,) = await session.scalars(select(UsageRollup))
        assert (rollup.requests, rollup.unbilled_attempts, rollup.prompt_tokens) == (0, 1, 0)


async def test_each_kind_of_use_has_its_own_price(bench: Bench, tenant: TenantId) -> None:
    any_use = prices("1")
    rows = [
        *any_use,
        *prices("3", service_class="batch"),
        *prices("5", base_id="b" * 64, service_class="interactive"),
    ]
    await bench.set_prices(rows)
    await bench.add(
        usage(tenant),
        usage(tenant, service_class="batch", adapter_name="pirate", adapter_version=2, owner_id=tenant),
        usage(tenant, service_class="interactive"),
        usage(tenant, source="cache"),
    )
    await bench.charging.run_once()
    by_price = {(row.service_class, row.source): int(row.amount) for row in await bench.charges(tenant)}
    assert by_price == {
        ("standard", "engine"): ONE_REQUEST,
        ("batch", "engine"): 3 * ONE_REQUEST,
        ("interactive", "engine"): 5 * ONE_REQUEST,
        ("standard", "cache"): (100 + 10) * PRICE // 10,
    }


async def test_usage_before_the_first_version_waits_for_a_price(bench: Bench, tenant: TenantId) -> None:
    await bench.add(usage(tenant), usage(tenant, NOON - timedelta(days=1)))
    await bench.charging.run_once()
    assert await bench.charges(tenant) == []
    await bench.set_prices(prices("1"), at=bucket_of(NOON))
    await bench.charging.run_once()
    assert await bench.charged(tenant) == (60, 40, 10, ONE_REQUEST)
    async with bench.db.system_reader() as session:
        left = list(await session.scalars(select(UsageUnpriced.bucket)))
    assert left == [bucket_of(NOON - timedelta(days=1))]


async def test_a_row_is_charged_under_the_version_of_its_time(bench: Bench, tenant: TenantId) -> None:
    change = bucket_of(NOON)
    await bench.set_prices(prices("1"))
    await bench.set_prices(prices("2"), at=change)
    await bench.add(
        usage(tenant, change - timedelta(microseconds=1)), usage(tenant, change), usage(tenant, change)
    )
    await bench.charging.run_once()
    found = [(row.version, int(row.amount)) for row in await bench.charges(tenant)]
    assert found == [(1, ONE_REQUEST), (2, 2 * 2 * ONE_REQUEST)]


async def test_a_rerating_does_what_its_dry_run_said_and_touches_nobody_else(
    bench: Bench, new_tenant: NewTenant
) -> None:
    ours, other = await new_tenant(), await new_tenant()
    await bench.set_prices(prices("1"))
    times = [NOON + timedelta(hours=n) for n in range(4)]
    for tenant in (ours, other):
        await bench.add(*(usage(tenant, moment) for moment in times))
    await bench.charging.run_once()
    version = await bench.set_prices(prices("0.25"))
    before = await bench.charges(other)
    window: dict[str, Any] = {"start": bucket_of(times[1]), "end": bucket_of(times[3]), "tenant": ours}
    dry = await bench.reratings.rerate(OPERATOR, version, ReRatingIn(**window))
    assert await bench.charged(ours) == (240, 160, 40, 4 * ONE_REQUEST)
    done = await bench.reratings.rerate(OPERATOR, version, ReRatingIn(**window, dry_run=False))
    assert (dry.data, dry.id) == (done.data, None)
    assert [told.charges for told in done.data] == [4]
    assert await bench.charged(ours) == (240, 160, 40, 2 * ONE_REQUEST + 2 * ONE_REQUEST // 4)
    appended = (await bench.charges(ours))[4:]
    assert [row.input_tokens for row in appended] == [-60, 60, -60, 60]
    assert {row.rerating for row in appended} == {done.id}
    assert [row.seq for row in await bench.charges(other)] == [row.seq for row in before]
    again = await bench.reratings.rerate(OPERATOR, version, ReRatingIn(**window, dry_run=False))
    assert [told.charges for told in again.data] == [0]
    async with bench.db.system_reader() as session:
        events = list(await session.scalars(select(AuditEvent).where(AuditEvent.action == "usage.rerate")))
    assert events[0].details["difference"] == done.data[0].difference
    await bench.add(usage(ours, times[1]))  # what comes late follows its bucket
    await bench.charging.run_once()
    assert (await bench.charges(ours))[-1].version == version


async def test_a_version_that_is_not_there_can_not_rate(bench: Bench) -> None:
    with pytest.raises(NotFound):
        await bench.reratings.rerate(OPERATOR, 9, ReRatingIn(start=NOON, end=NOON + timedelta(hours=1)))


async def test_charges_and_prices_take_no_changes(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices("1"))
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    for change in (
        "UPDATE usage_charges SET amount = 0",
        "DELETE FROM usage_charges",
        "UPDATE prices SET input = 0",
        "DELETE FROM price_book_versions",
    ):
        with pytest.raises(ProgrammingError, match="permission denied"):
            async with bench.db.system_session() as session:
                await session.execute(text(change))
    wrong = text(
        "INSERT INTO usage_charges (tenant_id, bucket, key_id, base_id, service_class, source, version,"
        " price_id, currency, requests, input_tokens, cached_tokens, output_tokens, input_price,"
        " cached_price, output_price, amount, billed_month)"
        " SELECT tenant_id, bucket, key_id, base_id, service_class,"
        " source, version, price_id, currency, requests, input_tokens, cached_tokens, output_tokens,"
        " input_price, cached_price, output_price, amount + 1, billed_month FROM usage_charges"
    )
    with pytest.raises(DBAPIError, match="usage_charges_amount"):
        async with bench.db.system_session() as session:
            await session.execute(wrong)


async def test_rows_that_come_while_the_job_runs_are_not_lost(bench: Bench, new_tenant: NewTenant) -> None:
    """Writers and two charging jobs at once (a leader that lost its lock, and the next)."""
    tenants = [await new_tenant() for _ in range(2)]
    await bench.set_prices(prices("1"))
    draw = random.Random(11)
    going = True

    async def write() -> None:
        for _ in range(40):
            some = draw.choice(tenants)
            late = NOON + timedelta(minutes=draw.randrange(60))
            async with bench.db.system_session() as session:
                await insert_events(session, [usage(some, late, request_id=uuid4()) for _ in range(3)])
                await asyncio.sleep(draw.random() / 500)  # committed later than it was written

    async def charge() -> None:
        while going:
            await bench.charging.run_once()
            await asyncio.sleep(0)

    jobs = [asyncio.create_task(charge()) for _ in range(2)]
    await asyncio.gather(write(), write(), write())
    going = False
    await asyncio.gather(*jobs)
    await bench.charging.run_once()
    for tenant in tenants:
        assert (await bench.charged(tenant))[:3] == await bench.ledger(tenant)
    seqs = [row.seq for tenant in tenants for row in await bench.charges(tenant)]
    assert len(seqs) == len(set(seqs))
