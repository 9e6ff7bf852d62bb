"""The charges always come to the usage, whatever came when and however often it is looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.charging.rating import (
    Charge,
    Grain,
    Line,
    Quantity,
    Rate,
    billed_month,
    rate,
    total,
)
from gateway.billing.meters import Metered, metered
from gateway.billing.price_book.prices import Book, Edition, ModelKind, PriceRow

TENANT = UUID(int=7)
NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
BUCKETS = [NOON + timedelta(minutes=15 * n) for n in range(3)]
COUNTS = st.integers(0, 10**7)


def edition(version: int, effective_from: datetime, price: int) -> Edition:
    rows = tuple(
        PriceRow(
            id=uuid4(), kind=kind, base_id=None, owner_id=None, adapter_name=None, service_class=None,
            input=price, cached_input=price // 2, output=price * 3, answer_input=price // 5,
            answer_output=price // 4,
        )
        for kind in (ModelKind.BASE, ModelKind.ANY_ADAPTER)
    )  # fmt: skip
    return Edition(version, "USD", effective_from, rows)


BOOK = Book(
    [edition(1, BUCKETS[1], 1_000_003), edition(2, BUCKETS[2], 7), edition(3, BUCKETS[0], 123_456_789)]
)
GRAINS = [
    Grain(
        tenant_id=TENANT, bucket=bucket, key_id=key, base_id="b", owner_id=TENANT if adapter else None,
        adapter_name=adapter, adapter_version=3 if adapter else None, artefact=None, service_class="standard",
        source=source,
    )
    for bucket in BUCKETS
    for key in ("k1", "k2")
    for adapter, source in ((None, "engine"), ("pirate", "engine"), ("pirate", "cache"))
]  # fmt: skip


def sums(charges: Sequence[Charge]) -> list[Charge]:
    """What the database's GROUP BY gives: by grain and rate, without what cancels out."""
    found: dict[tuple[Grain, Rate], Quantity] = defaultdict(Quantity)
    for each in charges:
        found[each.grain, each.rate] -= Quantity() - each.quantity
    return [Charge(*key, quantity) for key, quantity in found.items() if quantity]


def usage_of(charges: Sequence[Charge]) -> dict[Grain, Quantity]:
    found: dict[Grain, Quantity] = defaultdict(Quantity)
    for each in charges:
        found[each.grain] -= Quantity() - each.quantity
    return {grain: quantity for grain, quantity in found.items() if quantity}


growth = st.dictionaries(
    st.sampled_from(GRAINS), st.builds(Quantity, st.just(1), COUNTS, COUNTS, COUNTS), min_size=1, max_size=4
)
steps = st.lists(growth | st.sampled_from([1, 2, 3]), max_size=8)


@given(steps)
def test_whatever_comes_and_whoever_rerates_charges_come_to_the_usage(
    done: list[dict[Grain, Quantity] | int],
) -> None:
    used: dict[Grain, Quantity] = defaultdict(Quantity)
    charges: list[Charge] = []
    for step in done:
        if isinstance(step, dict):
            for grain, more in step.items():
                used[grain] -= Quantity() - more
        lines = [Line(grain, quantity) for grain, quantity in used.items()]
        under = step if isinstance(step, int) else None
        outcome = rate(lines, sums(charges), BOOK, under)
        charges += outcome.charges
        assert outcome.unpriced == set()
        assert usage_of(charges) == used
        again = rate(lines, sums(charges), BOOK, under)
        assert again.charges == []
        standing = sums(charges)
        versions = {(each.grain.place, each.rate.version) for each in standing}
        assert len(versions) == len({place for place, _ in versions})  # each bucket under one version
        for each in standing:
            found = BOOK.edition(each.rate.version)
            assert found is not None
            row = found.price_of(each.grain.selector)
            assert (each.rate.price_id, each.rate.prices) == (row.id, row.of_source(each.grain.source))
        assert total(charges) == sum(line.amount for each in standing for line in lines_of(each))


def lines_of(charge: Charge) -> list[Metered]:
    quantity = charge.quantity
    return metered(
        charge.grain.source, (quantity.input, quantity.cached, quantity.output), charge.rate.prices
    )


def test_a_version_that_begins_in_the_past_moves_nothing_that_is_rated() -> None:
    line = Line(GRAINS[0], Quantity(1, 10, 0, 1))
    first = rate([line], [], BOOK)
    assert [each.rate.version for each in first.charges] == [3]
    later = Book([*BOOK.editions, edition(4, BUCKETS[0], 1)])
    assert rate([line], sums(first.charges), later).charges == []
    more = Line(GRAINS[0], Quantity(2, 20, 0, 2))
    late = rate([more], sums(first.charges), later)
    assert [(each.rate.version, each.quantity) for each in late.charges] == [(3, Quantity(1, 10, 0, 1))]


def test_a_rerating_reverses_first_and_then_charges_anew() -> None:
    line = Line(GRAINS[0], Quantity(2, 10, 4, 1))
    first = rate([line], [], BOOK)
    moved = rate([line], sums(first.charges), BOOK, under=2)
    assert [(each.rate.version, each.quantity.input) for each in moved.charges] == [(3, -10), (2, 10)]
    assert total(moved.charges) == 10 * 7 + 4 * 3 + 1 * 21 - total(first.charges)


def test_before_the_first_version_usage_has_no_price_and_no_charge() -> None:
    line = Line(GRAINS[0], Quantity(1, 10, 0, 1))
    outcome = rate([line], [], Book([edition(1, BUCKETS[1], 5)]))
    assert (outcome.charges, outcome.unpriced) == ([], {GRAINS[0].place})


def test_a_charge_goes_to_the_first_month_that_is_open() -> None:
    january, february, march = date(2026, 1, 1), date(2026, 2, 1), date(2026, 3, 1)
    assert billed_month(NOON, set()) == january
    assert billed_month(NOON, {january}) == february
    assert billed_month(NOON, {january, february}) == march
    before_the_first = datetime(2026, 1, 31, 23, 45, tzinfo=UTC)  # of a clock that was set back
    assert billed_month(before_the_first, {february}) == march  # january is closed by nobody any more
