"""Which version holds is known exactly or not at all: held against the whole book's answer, at any moment
and however old the list is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.months import bucket_of
from gateway.billing.price_book.in_force import LEAD_S, SPARED_S, PricesInForce
from gateway.billing.price_book.prices import Book, Edition

START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = st.integers(0, 6 * 3600)


def bucket_after(moment: datetime) -> datetime:
    bucket = bucket_of(moment)
    return bucket if bucket == moment else bucket + timedelta(minutes=15)


@given(
    made=st.lists(st.tuples(SECONDS, st.integers(0, 8)), max_size=12),
    read=SECONDS,
    ended=SECONDS,
)
def test_it_is_what_the_whole_book_says_or_unknown(
    made: list[tuple[int, int]], read: int, ended: int
) -> None:
    """Versions are made at any second, each for a quarter of an hour at least `LEAD_S` ahead; the list holds
    those that were made before it was read."""
    versions = []
    for number, (second, quarters) in enumerate(sorted(made), start=1):
        created = START + timedelta(seconds=second)
        begins = bucket_after(created + timedelta(seconds=LEAD_S)) + quarters * timedelta(minutes=15)
        versions.append((created, begins, number))
    read_at = START + timedelta(seconds=read)
    known = PricesInForce()
    known.learn([(begins, number) for created, begins, number in versions if created <= read_at], read_at)
    moment = START + timedelta(seconds=ended)
    told = known.version_at(moment)
    whole = Book(Edition(number, "USD", begins, ()) for _, begins, number in versions)
    holds = whole.in_force_at(bucket_of(moment))
    if bucket_of(moment) <= read_at + timedelta(seconds=LEAD_S - SPARED_S):
        assert told == (holds.version if holds else None)
    else:
        assert told is None


def test_nothing_is_known_before_the_first_reading() -> None:
    assert PricesInForce().version_at(START) is None
