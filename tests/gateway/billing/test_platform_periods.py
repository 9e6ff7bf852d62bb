"""What operators see of months: which is open and why, and whether charges are what was used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text

from gateway.billing.months import month_of, next_month
from gateway.billing.periods.blocked import Blocked
from gateway.billing.periods.platform import Compared, Periods
from gateway.billing.periods.schemas import PeriodTenantOut, PlatformPeriodOut
from gateway.principal import TenantId
from tests.gateway.billing.conftest import FEBRUARY, JANUARY, NOON, Bench, prices, usage

NewTenant = Callable[[], Awaitable[TenantId]]


@pytest.fixture
def periods(bench: Bench) -> Periods:
    return Periods(bench.db, timedelta(hours=1))


async def of(periods: Periods, *, ledger: bool = True) -> dict[TenantId, Compared]:
    found = await periods.tenants(JANUARY, None, 10, ledger=ledger)
    return {TenantId(each.tenant): each for each in found.rows}


async def test_months_go_from_the_first_used_to_this_one(
    bench: Bench, periods: Periods, tenant: TenantId
) -> None:
    assert await periods.months(None, 10) == []
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    months = {each.month: each for each in await periods.months(None, 100)}
    assert min(months) == JANUARY
    assert max(months) == month_of(datetime.now(UTC))
    assert months[JANUARY].blocked is Blocked.INCOMPLETE
    assert months[max(months)].blocked is None  # it is not over
    await bench.complete_until(datetime(2026, 2, 2, tzinfo=UTC))
    january = (await periods.months(FEBRUARY, 1))[0]
    assert (january.blocked, january.found and january.found.unpriced) == (Blocked.UNPRICED, 1)
    await bench.set_prices(prices())
    await bench.close("2026-01")
    shown = [PlatformPeriodOut.of(each) for each in await periods.months(next_month(FEBRUARY), 2)]
    assert [(each.month, each.status, each.exact, each.total) for each in shown] == [
        ("2026-02", "ended", "0", "0.00"),
        ("2026-01", "closed", "0.00012", "0.00"),
    ]
    assert (shown[1].tenants, shown[1].currency, shown[1].closed_at is None) == (1, "USD", False)


@pytest.mark.parametrize(
    ("charged", "unpriced", "agrees"),
    [
        ((200, 80, 20), 0, True),
        ((100, 40, 10), 0, False),
        ((100, 40, 10), 1, True),
        ((300, 80, 20), 1, False),
        ((200, 80, 21), 2, False),
    ],
)
def test_more_charged_than_used_is_never_excused(
    charged: tuple[int, int, int], unpriced: int, agrees: bool
) -> None:
    found = Compared(
        tenant=uuid4(),
        name="acme",
        statement=None,
        billed=None,
        used=(200, 80, 20),
        charged=charged,
        ledger=None,
        unpriced=unpriced,
        unknown=0,
    )
    assert found.agrees is agrees


async def test_tenants_of_a_month_are_reconciled(
    bench: Bench, periods: Periods, new_tenant: NewTenant
) -> None:
    ours, theirs = await new_tenant(), await new_tenant()
    await new_tenant()  # used nothing
    await bench.add(usage(ours), usage(ours, NOON + timedelta(days=3)), usage(theirs))
    await bench.charging.run_once()
    unpriced = await of(periods)
    assert (unpriced[ours].used, unpriced[ours].charged, unpriced[ours].unpriced) == (
        (200, 80, 20),
        (0, 0, 0),
        2,
    )
    await bench.set_prices(prices())
    await bench.charging.run_once()
    found = await of(periods)
    assert set(found) == {ours, theirs}
    assert found[ours].used == found[ours].charged == found[ours].ledger == (200, 80, 20)
    assert all(each.agrees for each in found.values())
    shown = PeriodTenantOut.of(found[ours])
    assert (shown.exact, shown.total, shown.name) == ("0.00024", "0.00", await bench.tenant_name(ours))
    first = await periods.tenants(JANUARY, None, 1, ledger=False)
    rest = await periods.tenants(JANUARY, first.rows[0].tenant, 9, ledger=False)
    assert [each.tenant for each in (*first.rows, *rest.rows)] == sorted([ours, theirs])
    assert first.rows[0].ledger is None
    lost = text("DELETE FROM usage_rollups WHERE tenant_id = :id AND bucket > :noon")
    async with bench.db.system_session() as session:
        await session.execute(lost, {"id": ours, "noon": NOON})
    after = await of(periods)
    assert (after[ours].agrees, after[theirs].agrees) == (False, True)
