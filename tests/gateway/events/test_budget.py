"""A flood of one tenant's requests: how many are kept, and what they stand for."""

from __future__ import annotations

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from gateway.events.budget import Budget


@given(most=st.integers(1, 50), number=st.integers(1, 20_000))
def test_a_flood_is_bounded_and_still_counted(most: int, number: int) -> None:
    budget, tenant = Budget(most), uuid4()
    told = [budget.stands_for(1, tenant, False) for _ in range(number)]
    assert told[:most] == [1] * min(most, number)
    kept = [place for place, stands_for in enumerate(told, 1) if stands_for]
    assert len(kept) <= 2 * most + number.bit_length()
    assert kept[-1] * 2 + 1 >= number
    assert sum(told) == kept[-1]  # exact, but for those that came after the last


def test_refusals_tenants_and_minutes_have_budgets_of_their_own() -> None:
    budget, loud, quiet = Budget(10), uuid4(), uuid4()
    for _ in range(1_000):
        budget.stands_for(1, loud, True)
    assert budget.stands_for(1, loud, False) == 1
    assert budget.stands_for(1, quiet, True) == 1
    assert budget.stands_for(2, loud, True) == 1
