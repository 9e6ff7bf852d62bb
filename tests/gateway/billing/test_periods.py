"""Closing a month: only when it is over, complete and right; then for good."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import delete, select

from gateway.billing.charging.schemas import ReRatingIn
from gateway.billing.money import units_of
from gateway.billing.months import bucket_of, end_of, month_of
from gateway.billing.periods.blocked import Blocked
from gateway.billing.periods.service import invoice_id
from gateway.billing.statements.schemas import PeriodOut
from gateway.models import BillingPeriod, BillingStatement, UsageArrival
from gateway.principal import TenantId
from gateway.usage.repository import give_up_uncounted
from tests.gateway.billing.conftest import FEBRUARY, JANUARY, NOON, NOTHING, OPERATOR, Bench, prices, usage

LATER = end_of(JANUARY) + timedelta(days=1)


async def why_open(bench: Bench) -> Blocked | None:
    """Tries to close January when its time has come."""
    assert await bench.closing.run_once(LATER) == 0
    return await bench.closing.why_open(JANUARY)


async def closed(bench: Bench) -> list[str]:
    async with bench.db.system_reader() as session:
        found = await session.scalars(select(BillingPeriod.month).order_by(BillingPeriod.month))
        return [f"{month:%Y-%m}" for month in found]


async def test_a_month_closes_once_it_is_over_complete_and_equal(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices("1"))
    await bench.add(usage(tenant))
    assert await bench.closing.run_once(LATER) == 0  # the rollups know of no month yet
    await bench.charging.run_once()
    assert await bench.closing.run_once(end_of(JANUARY)) == 0  # the grace is not over
    assert await why_open(bench) is Blocked.INCOMPLETE  # nobody knows
    await bench.complete_until(end_of(JANUARY))
    assert await why_open(bench) is Blocked.INCOMPLETE
    await bench.complete_until(LATER)
    await bench.add(usage(tenant, NOON + timedelta(hours=1)))
    assert await why_open(bench) is Blocked.STALE
    await bench.charging.run_once()
    unknown = usage(tenant, counted=False, outcome="failed", **NOTHING)
    await bench.add(unknown)
    assert await why_open(bench) is Blocked.UNCOUNTED
    async with bench.db.system_session() as session:
        assert await give_up_uncounted(session) == 1
    await bench.charging.run_once()
    assert await bench.closing.run_once(LATER) == 1
    assert await closed(bench) == ["2026-01"]
    assert await bench.closing.run_once(LATER) == 0


async def test_usage_without_a_price_keeps_a_month_open(bench: Bench, tenant: TenantId) -> None:
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    await bench.complete_until(LATER)
    assert await why_open(bench) is Blocked.UNPRICED
    await bench.set_prices(prices("1"))
    await bench.charging.run_once()
    assert await bench.closing.run_once(LATER) == 1


async def test_charges_that_differ_from_the_ledger_keep_it_open(bench: Bench, tenant: TenantId) -> None:
    """What no path does: a row that came past the trigger."""
    await bench.set_prices(prices("1"))
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    await bench.complete_until(LATER)
    await bench.add(usage(tenant))
    async with bench.db.system_session() as session:
        await session.execute(delete(UsageArrival))
    assert await why_open(bench) is Blocked.DIFFERENT


async def test_what_comes_later_is_corrected_in_the_open_month(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices("1"))
    await bench.add(usage(tenant))
    await bench.close("2026-01")
    before = await bench.statements.statement(tenant, JANUARY)
    assert (before.status, before.id) == ("closed", invoice_id(tenant, JANUARY))
    await bench.add(usage(tenant, NOON + timedelta(minutes=1)))
    await bench.charging.run_once()
    assert [row.billed_month for row in await bench.charges(tenant)] == [JANUARY, FEBRUARY]
    assert await bench.statements.statement(tenant, JANUARY) == before
    february = await bench.statements.statement(tenant, FEBRUARY)
    assert {line.used_month for line in february.lines} == {"2026-01"}
    assert all(line.correction for line in february.lines)
    await bench.close("2026-02")
    assert await closed(bench) == ["2026-01", "2026-02"]
    _, found = await bench.statements.periods(tenant, None, 10)
    periods = [PeriodOut.of(each) for each in found]
    assert [(each.month, each.status) for each in periods] == [("2026-02", "closed"), ("2026-01", "closed")]


async def test_a_rerating_of_a_closed_month_is_billed_in_the_open_one(bench: Bench, tenant: TenantId) -> None:
    await bench.set_prices(prices("1"))
    await bench.add(usage(tenant))
    await bench.close("2026-01")
    cheaper = await bench.set_prices(prices("0.5"))
    start = bucket_of(NOON)
    wanted = ReRatingIn(start=start, end=start + timedelta(minutes=15), dry_run=False)
    await bench.reratings.rerate(OPERATOR, cheaper, wanted)
    months = [
        (month_of(row.bucket), row.billed_month, row.input_tokens) for row in await bench.charges(tenant)
    ]
    assert months == [(JANUARY, JANUARY, 60), (JANUARY, FEBRUARY, -60), (JANUARY, FEBRUARY, 60)]
    assert (await bench.statements.statement(tenant, FEBRUARY)).exact == "-0.00006"


@pytest.mark.parametrize(
    ("price", "exact", "rounding", "total"),
    [
        ("100", "0.012", "-0.002", "0.01"),
        ("50", "0.006", "0.004", "0.01"),
        ("0.00001", "0.0000000012", "-0.0000000012", "0.00"),
    ],
)
async def test_a_statement_is_rounded_once_and_its_rows_sum_to_it(
    bench: Bench, tenant: TenantId, price: str, exact: str, rounding: str, total: str
) -> None:
    await bench.set_prices(prices(price))
    await bench.add(usage(tenant))
    await bench.charging.run_once()
    preview = await bench.statements.statement(tenant, JANUARY)
    assert (preview.id, preview.status) == (None, "open")
    await bench.close("2026-01")
    found = await bench.statements.statement(tenant, JANUARY)
    assert (found.exact, found.rounding, found.total) == (exact, rounding, total)
    assert (preview.exact, preview.total) == (exact, total)
    summed = sum(units_of(line.amount) for line in found.lines) + units_of(found.rounding)
    assert summed == units_of(found.total)
    async with bench.db.system_reader() as session:
        (issued,) = await session.scalars(select(BillingStatement))
    assert (int(issued.exact), int(issued.rounded)) == (units_of(exact), units_of(total))


async def test_a_statement_says_what_is_not_in_it(bench: Bench, tenant: TenantId) -> None:
    await bench.add(usage(tenant), usage(tenant, counted=False, **NOTHING))
    await bench.complete_until(NOON)
    await bench.charging.run_once()
    found = await bench.statements.statement(tenant, JANUARY)
    assert (found.lines, found.total, found.currency) == ([], "0.00", None)
    assert (found.has_unpriced, found.unknown_requests, found.complete_until) == (True, 1, NOON)
