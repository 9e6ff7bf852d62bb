"""Sums of a window by day, adapter, key and class: the same total each way, and the ledger's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from sqlalchemy import text

from gateway.errors import BadRequest
from gateway.ids import uuid7
from gateway.models import ApiKey
from gateway.principal import TenantId
from gateway.usage.service import Asked, report
from gateway.usage.summary import service
from gateway.usage.summary.repository import By
from gateway.usage.summary.schemas import UsageSum
from gateway.usage.summary.service import summary
from gateway.usage.zones import Period, days_of, zone_of
from tests.gateway.billing.conftest import JANUARY, NOON, Bench, prices, usage

NewTenant = Callable[[], Awaitable[TenantId]]
ZONES = ["Europe/Vienna", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns"]
CHANGES = [  # a week about the day on which a clock changes
    (date(2026, 3, 26), date(2026, 4, 1)),
    (date(2025, 10, 23), date(2025, 10, 29)),
    (date(2026, 3, 5), date(2026, 3, 11)),
    (date(2025, 10, 30), date(2025, 11, 5)),
]
Figures = tuple[int, int, int, int, Decimal]


def figures(each: UsageSum) -> Figures:
    assert each.amount is not None
    return (
        each.requests,
        each.prompt_tokens,
        each.completion_tokens,
        each.cached_tokens,
        Decimal(each.amount),
    )


def added(sums: Sequence[UsageSum]) -> Figures:
    found = [figures(each) for each in sums] or [(0, 0, 0, 0, Decimal(0))]
    requests, prompt, completion, cached, amount = zip(*found, strict=True)
    return sum(requests), sum(prompt), sum(completion), sum(cached), sum(amount, Decimal(0))


@pytest.mark.parametrize(("first", "last"), CHANGES)
async def test_days_groups_range_and_ledger_are_one_figure(
    bench: Bench, tenant: TenantId, first: date, last: date
) -> None:
    await bench.set_prices([*prices("0.15"), *prices("0.2", service_class="batch")])
    start = datetime(first.year, first.month, first.day, tzinfo=UTC) - timedelta(days=1)
    times = [start + timedelta(minutes=47 * n, microseconds=n) for n in range(300)]
    await bench.add(
        *(
            usage(
                tenant,
                moment,
                key_id=f"k{n % 3}",
                service_class="batch" if n % 4 == 0 else "standard",
                adapter_name="pirate" if n % 2 else None,
                adapter_version=1 if n % 2 else None,
                owner_id=tenant if n % 2 else None,
                billed_prompt_tokens=100 + n,
            )
            for n, moment in enumerate(times)
        )
    )
    await bench.charging.run_once()
    for zone in ZONES:
        asked = Asked(first, last, zone)
        mine = [n for n, at in enumerate(times) if first <= at.astimezone(zone_of(zone)).date() <= last]
        whole = await report(bench.db, tenant, asked)
        for by in By:
            found = await summary(bench.db, tenant, asked, by)
            assert figures(found.total) == added(found.days) == added(found.groups)
            assert found.total.prompt_tokens == sum(100 + n for n in mine) == whole.prompt_tokens
            assert (found.total.requests, found.total.amount) == (len(mine), whole.amount)
            assert (found.start, found.end) == (whole.start, whole.end)
            assert [day.day for day in found.days] == [first + timedelta(days=n) for n in range(7)]
            for day in found.days:
                assert day.requests == sum(day.start <= at < day.end for at in times)
    all_of_it = await summary(bench.db, tenant, Asked(first - timedelta(2), last + timedelta(9)), By.KEY)
    tokens = await bench.ledger(tenant)
    total = all_of_it.total
    assert tokens == (total.prompt_tokens - total.cached_tokens, total.cached_tokens, total.completion_tokens)
    assert int(Decimal(total.amount or 0) * 10**12) == (await bench.charged(tenant))[3]


async def test_the_days_are_the_tenants_unless_a_zone_is_named(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices())
    late = datetime(2026, 1, 15, 22, 30, tzinfo=UTC)  # the 16th in Kolkata
    await bench.add(usage(tenant, late))
    await bench.charging.run_once()
    async with bench.db.system_session() as session:
        setting = text("UPDATE tenants SET reporting_zone = 'Asia/Kolkata' WHERE id = :id")
        await session.execute(setting, {"id": tenant})
    days = Asked(date(2026, 1, 15), date(2026, 1, 16))
    found = await summary(bench.db, tenant, days, By.ADAPTER)
    assert (found.zone, [day.requests for day in found.days]) == ("Asia/Kolkata", [0, 1])
    assert found.start == datetime(2026, 1, 14, 18, 30, tzinfo=UTC)
    told = await report(bench.db, tenant, days)
    assert (told.zone, [row.day.day for row in told.data]) == ("Asia/Kolkata", [16])
    in_utc = await summary(bench.db, tenant, Asked(days.first, days.last, "UTC"), By.ADAPTER)
    assert [day.requests for day in in_utc.days] == [1, 0]


async def test_what_has_no_price_is_unknown_and_never_nothing(bench: Bench, tenant: TenantId) -> None:
    asked = Asked(JANUARY, JANUARY.replace(day=31), "UTC")
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    found = await summary(bench.db, tenant, asked, By.ADAPTER)
    assert (found.total.amount, found.total.unpriced_tokens, found.currency) == (None, 110, None)
    assert (found.groups[0].amount, found.days[14].amount, found.days[0].amount) == (None, None, "0")
    assert (await report(bench.db, tenant, asked)).amount is None
    await bench.set_prices(prices(), NOON + timedelta(hours=1))
    await bench.add(usage(tenant, NOON + timedelta(hours=2)))
    await bench.charging.run_once()
    found = await summary(bench.db, tenant, asked, By.ADAPTER)
    assert (found.total.amount, found.total.unpriced_tokens) == ("0.00012", 110)  # at the least


async def test_groups_have_names_and_the_rest_is_summed(
    bench: Bench, new_tenant: NewTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = await new_tenant(), await new_tenant()
    name = await bench.tenant_name(theirs)
    await bench.set_prices(prices())
    shared = {"adapter_name": "pirate", "adapter_version": 1, "owner_id": theirs}
    async with bench.db.system_session() as session:
        key = {
            "key_id": "k1",
            "name": "mobile",
            "secret_hmac": b"x" * 32,
            "pepper_version": "p",
            "scopes": [],
        }
        session.add(ApiKey(id=uuid7(), tenant_id=ours, **key))
    await bench.add(*(usage(ours, NOON + timedelta(hours=n), key_id=f"k{n}", **shared) for n in range(4)))
    await bench.add(usage(ours, NOON, key_id="k1"))
    await bench.charging.run_once()
    asked = Asked(JANUARY, JANUARY.replace(day=31), "UTC")
    adapters = await summary(bench.db, ours, asked, By.ADAPTER)
    assert [(each.id, each.requests) for each in adapters.groups] == [(f"{name}/pirate", 4), (None, 1)]
    monkeypatch.setattr(service, "MAX_GROUPS", 2)
    keys = await summary(bench.db, ours, asked, By.KEY)
    assert [(each.id, each.name, each.requests) for each in keys.groups] == [
        ("k1", "mobile", 2),
        ("k0", None, 1),
    ]
    assert keys.others is not None
    assert (keys.others.groups, keys.others.requests) == (2, 2)
    assert figures(keys.total) == added([*keys.groups, keys.others]) == figures(adapters.total)
    assert (await summary(bench.db, theirs, asked, By.KEY)).groups == []


def test_named_windows_are_whole_days() -> None:
    now = date(2026, 3, 5)
    found = {period: days_of(period, now) for period in Period}
    assert found == {
        Period.LAST_7_DAYS: (date(2026, 2, 27), now),
        Period.LAST_31_DAYS: (date(2026, 2, 3), now),
        Period.THIS_MONTH: (date(2026, 3, 1), now),
        Period.LAST_MONTH: (date(2026, 2, 1), date(2026, 2, 28)),
    }


async def test_a_window_is_named_or_given(bench: Bench, tenant: TenantId) -> None:
    with pytest.raises(BadRequest, match="leave"):
        await summary(bench.db, tenant, Asked(first=JANUARY, period=Period.LAST_MONTH), By.KEY)
    found = await summary(bench.db, tenant, Asked(period=Period.LAST_7_DAYS), By.KEY)
    assert (len(found.days), found.total.amount, found.others) == (7, "0", None)
    nobody = TenantId(UUID(int=0))
    assert (await summary(bench.db, nobody, Asked(), By.KEY)).zone == "UTC"
