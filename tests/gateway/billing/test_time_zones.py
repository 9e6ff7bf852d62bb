"""Any zone's days sum to the ledger, over both changes of its clocks."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.billing.months import BUCKET, bucket_of
from gateway.principal import TenantId
from gateway.usage.service import Asked, report
from gateway.usage.zones import UnknownZone, window_of, zone_of
from tests.gateway.billing.conftest import Bench, prices, usage

ZONES = ["UTC", "Asia/Kolkata", "Asia/Kathmandu", "America/St_Johns", "Europe/Vienna", "Pacific/Apia"]
SPRING = (date(2026, 3, 7), date(2026, 3, 31))  # St. John's changes on the 8th, Vienna on the 29th
AUTUMN = (date(2025, 10, 24), date(2025, 11, 4))


@pytest.mark.parametrize(("first", "last"), [SPRING, AUTUMN])
async def test_days_sum_to_the_range_and_the_ledger(
    bench: Bench, tenant: TenantId, first: date, last: date
) -> None:
    await bench.set_prices(prices("0.00001"))
    start = datetime(first.year, first.month, first.day, tzinfo=UTC) - timedelta(days=1)
    hours = ((last - first).days + 3) * 24
    times = [start + timedelta(hours=n, minutes=7 * n % 60, microseconds=n) for n in range(hours)]
    await bench.add(*(usage(tenant, moment) for moment in times))
    await bench.charging.run_once()
    for name in ZONES:
        zone = zone_of(name)
        whole = await report(bench.db, tenant, Asked(first, last, name))
        days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
        single = [await report(bench.db, tenant, Asked(day, day, name)) for day in days]
        mine = [moment for moment in times if first <= moment.astimezone(zone).date() <= last]
        assert whole.requests == sum(each.requests for each in single) == len(mine)
        assert whole.prompt_tokens == sum(each.prompt_tokens for each in single) == 100 * len(mine)
        amounts = [Decimal(each.amount or 0) for each in (whole, *single)]
        assert amounts[0] == sum(amounts[1:]) == Decimal("0.0000000012") * len(mine)
        by_day = {row.day: row.requests for row in whole.data}
        assert by_day == {
            day: sum(moment.astimezone(zone).date() == day for moment in times) for day in by_day
        }


@settings(max_examples=200)
@given(st.sampled_from(ZONES), st.dates(date(2000, 1, 1), date(2040, 1, 1)), st.integers(0, 60))
def test_days_are_whole_quarters_and_leave_no_gap(name: str, first: date, more: int) -> None:
    window = window_of(zone_of(name), first, first + timedelta(days=more))
    assert len(window.edges) == len(window.days) + 1
    assert window.edges == sorted(window.edges)
    assert all(bucket_of(edge) == edge for edge in window.edges)
    zone = zone_of(name)
    for day, low, high in zip(window.days, window.edges, window.edges[1:], strict=False):
        for moment in (low, high - BUCKET):
            assert low == high or moment.astimezone(zone).date() == day


@pytest.mark.parametrize(
    "name", ["", "+02:00", "Europe/Nowhere", "../etc/passwd", "europe/vienna", "America"]
)
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(UnknownZone):
        zone_of(name)


def test_a_date_that_a_zone_left_out_has_no_hours() -> None:
    """Samoa went from the 29th of December 2011 to the 31st."""
    window = window_of(zone_of("Pacific/Apia"), date(2011, 12, 29), date(2011, 12, 31))
    hours = [
        (high - low) / timedelta(hours=1) for low, high in zip(window.edges, window.edges[1:], strict=False)
    ]
    assert hours == [24, 0, 24]
