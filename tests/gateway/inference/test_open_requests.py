"""A worker holds so many requests, one tenant not all of them, and a place is free when its request ends."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Unavailable
from gateway.inference.open_requests import OpenRequests
from gateway.principal import TenantId

FIRST, SECOND = TenantId(uuid4()), TenantId(uuid4())


def test_past_the_limit_a_request_hears_when_to_come_again() -> None:
    places = OpenRequests(3, 2)
    with ExitStack() as stack:
        stack.enter_context(places.one_of(FIRST))
        stack.enter_context(places.one_of(FIRST))
        with pytest.raises(Unavailable) as refused, places.one_of(FIRST):
            pass
        assert refused.value.code == "too_many_open_requests"
        assert (refused.value.status, refused.value.headers["retry-after"]) == (503, "1")
        stack.enter_context(places.one_of(SECOND))  # one tenant's flood leaves room
        with pytest.raises(Unavailable), places.one_of(SECOND):
            pass
    with places.one_of(SECOND), places.one_of(SECOND):
        assert places.now == 2


@given(st.lists(st.tuples(st.sampled_from([FIRST, SECOND]), st.booleans()), max_size=60))
def test_no_order_of_begins_and_ends_leaks_a_place(steps: list[tuple[TenantId, bool]]) -> None:
    places = OpenRequests(5, 3)
    held: list[tuple[TenantId, ExitStack]] = []
    for tenant, begins in steps:
        if begins:
            stack = ExitStack()
            with suppress(Unavailable):
                stack.enter_context(places.one_of(tenant))
                held.append((tenant, stack))
        elif held:
            held.pop(0)[1].close()
        assert places.now == len(held) <= 5
        assert all(sum(owner == each for owner, _ in held) <= 3 for each in (FIRST, SECOND))
    for _, stack in held:
        stack.close()
    assert places.now == 0
