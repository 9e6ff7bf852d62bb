"""Which price holds: always exactly one, and always the most particular."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.price_book.prices import (
    Book,
    Edition,
    ModelKind,
    PriceBookInvalid,
    PriceRow,
    Selector,
    check_rows,
)

BASES = ["base-1", "base-2"]
OWNERS = [UUID(int=1), UUID(int=2)]
NAMES = ["pirate", "poet"]
CLASSES = ["interactive", "standard", "batch"]
NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)


def row(kind: ModelKind, **more: object) -> PriceRow:
    selectors = {"base_id": None, "owner_id": None, "adapter_name": None, "service_class": None, **more}
    prices = dict.fromkeys(("input", "cached_input", "output", "answer_input", "answer_output"), 1)
    return PriceRow(id=uuid4(), kind=kind, **selectors, **prices)  # type: ignore[arg-type]  # by name


CATCH_ALL = [row(ModelKind.BASE), row(ModelKind.ANY_ADAPTER)]
ROWS = [
    *(
        row(kind, base_id=base, service_class=name)
        for kind, base, name in product(
            (ModelKind.BASE, ModelKind.ANY_ADAPTER), [None, *BASES], [None, *CLASSES]
        )
        if base or name
    ),
    *(
        row(ModelKind.ADAPTER, owner_id=owner, adapter_name=adapter, base_id=base, service_class=name)
        for owner, adapter, base, name in product(OWNERS, NAMES, [None, *BASES], [None, *CLASSES])
    ),
]
USES = st.builds(
    Selector,
    st.sampled_from([*BASES, "base-3"]),
    st.sampled_from([*OWNERS, UUID(int=3)]),
    st.sampled_from([*NAMES, "priest"]),
    st.sampled_from(CLASSES),
) | st.builds(Selector, st.sampled_from(BASES), st.none(), st.none(), st.sampled_from(CLASSES))


def by_hand(rows: list[PriceRow], used: Selector) -> PriceRow:
    """The rule spelled out: try the most particular selectors first."""
    found = {each.selectors: each for each in rows}
    adapters: list[tuple[ModelKind, UUID | None, str | None]] = (
        [(ModelKind.BASE, None, None)]
        if used.adapter_name is None
        else [
            (ModelKind.ADAPTER, used.owner_id, used.adapter_name),
            (ModelKind.ANY_ADAPTER, None, None),
        ]
    )
    for kind, owner, name in adapters:
        for base, service_class in product((used.base_id, None), (used.service_class, None)):
            if (hit := found.get((kind, base, owner, name, service_class))) is not None:
                return hit
    raise AssertionError("a gap")


@given(st.sets(st.sampled_from(range(len(ROWS)))), USES, st.randoms())
def test_exactly_one_row_wins_and_it_is_the_one_by_hand(
    places: set[int], used: Selector, draw: object
) -> None:
    rows = [*CATCH_ALL, *(ROWS[place] for place in sorted(places))]
    draw.shuffle(rows)  # type: ignore[attr-defined]  # random.Random
    check_rows(rows)
    choice = Edition(1, "USD", NOON, tuple(rows)).choose(used)
    assert choice.winner is by_hand(rows, used)
    assert all(each.particularity < choice.winner.particularity for each in choice.beaten)
    assert len(choice.beaten) + len(choice.refused) + 1 == len(rows)
    assert choice.reason


def test_a_gap_and_an_overlap_are_refused() -> None:
    with pytest.raises(PriceBookInvalid, match="any_adapter"):
        check_rows(CATCH_ALL[:1])
    with pytest.raises(PriceBookInvalid, match="same selectors") as refused:
        check_rows([*CATCH_ALL, row(ModelKind.BASE)])
    assert refused.value.row == 2


def test_the_version_in_force_is_the_last_to_begin_and_of_two_the_later() -> None:
    editions = [
        Edition(number, "USD", NOON + timedelta(hours=hours), tuple(CATCH_ALL))
        for number, hours in ((1, 0), (2, 2), (3, 1), (4, 2))
    ]
    book = Book(editions)
    moments = [NOON + timedelta(minutes=m) for m in (-15, 0, 45, 60, 105, 120, 9_999)]
    found = [book.in_force_at(moment) for moment in moments]
    assert [None if each is None else each.version for each in found] == [None, 1, 1, 3, 3, 4, 4]
    assert book.edition(2) is editions[1]
    assert book.edition(5) is None
