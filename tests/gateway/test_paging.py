"""Cursors: what one list gave out it takes back, and nothing else."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequest
from gateway.paging import MAX_CURSOR, ByCreation, Order

KEYS: Order[ByCreation] = Order("keys", datetime, UUID)
NAMES: Order[tuple[str]] = Order("names", str)
NUMBERS: Order[tuple[int]] = Order("numbers", int)


@given(st.datetimes(timezones=st.just(UTC)), st.uuids())
def test_a_cursor_gives_its_place_back(at: datetime, name: UUID) -> None:
    assert KEYS.start(KEYS.cursor((at, name), {"state": "live"}), {"state": "live"}) == (at, name)


@given(st.text(max_size=MAX_CURSOR * 2))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        KEYS.start(text)
    assert (refused.value.status, refused.value.code, refused.value.param) == (
        400,
        "invalid_cursor",
        "cursor",
    )


def raw(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def test_a_cursor_belongs_to_its_list_and_its_filters() -> None:
    at = datetime(2026, 11, 30, tzinfo=UTC)
    cursor = KEYS.cursor((at, UUID(int=1)), {"state": "live", "name_prefix": None})
    assert KEYS.start(cursor, {"state": "live"}) == (at, UUID(int=1))
    for order, filters in ((KEYS, {}), (KEYS, {"state": "revoked"}), (NAMES, {"state": "live"})):
        with pytest.raises(BadRequest):
            order.start(cursor, filters)


def test_places_of_the_wrong_form_are_refused() -> None:
    digest = base64.urlsafe_b64decode(NAMES.cursor(("x",)) + "==").decode().split('"')[3]
    assert NAMES.start(raw(f'["names","{digest}","y"]')) == ("y",)
    for order, text in (
        (NAMES, f'["names","{digest}"]'),
        (NAMES, f'["names","{digest}",1]'),
        (NAMES, f'["names","{digest}","a","b"]'),
        (NAMES, "{}"),
        (NAMES, "[]"),
        (NUMBERS, f'["numbers","{digest}",{2**63}]'),
        (KEYS, f'["keys","{digest}","0001-01-01T00:00:00+14:00","{UUID(int=1)}"]'),
    ):
        with pytest.raises(BadRequest):
            order.start(raw(text))


def test_a_page_says_whether_there_are_more() -> None:
    def page(found: list[int]) -> tuple[list[str], bool, str | None]:
        made = NUMBERS.cut(found, 2, lambda n: (n,)).page(str)
        return made.data, made.has_more, made.next_cursor

    assert page([]) == ([], False, None)
    assert page([1, 2]) == (["1", "2"], False, None)
    assert page([1, 2, 3]) == (["1", "2"], True, NUMBERS.cursor((2,)))
