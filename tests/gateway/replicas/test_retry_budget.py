from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.replicas.retry_budget import BURST, RetryBudget


@given(st.lists(st.booleans(), max_size=400), st.sampled_from([0.0, 0.1, 0.5]))
def test_retries_are_a_share_of_what_begins(steps: list[bool], share: float) -> None:
    budget = RetryBudget(share)
    begun = retried = 0
    for begins in steps:
        if begins:
            budget.deposit()
            begun += 1
        else:
            retried += budget.withdraw()
        assert retried <= BURST + share * begun + 1e-6


def test_a_quiet_worker_may_retry_at_once_but_not_for_ever() -> None:
    budget = RetryBudget(0.1)
    assert [budget.withdraw() for _ in range(12)] == [True] * 10 + [False] * 2
    for _ in range(11):
        budget.deposit()
    assert [budget.withdraw() for _ in range(2)] == [True, False]
