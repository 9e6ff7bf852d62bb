"""The rank test against all the ways in which two samples can be dealt out."""

from __future__ import annotations

import itertools

import pytest

from tests.rig.ranks import mann_whitney


@pytest.mark.parametrize(
    "first", [(1, 2, 3, 4, 5, 6), (1, 3, 5, 7, 9, 11), (2, 3, 5, 8, 9, 12), (7, 8, 9, 10, 11, 12)]
)
def test_p_is_the_part_of_all_deals_that_differ_as_much(first: tuple[int, ...]) -> None:
    values = range(1, 13)

    def distance(some: tuple[int, ...]) -> float:
        others = [value for value in values if value not in some]
        return abs(sum(a < b for a in some for b in others) - 18)

    deals = list(itertools.combinations(values, 6))
    exact = sum(distance(deal) >= distance(first) for deal in deals) / len(deals)
    found = mann_whitney(first, [value for value in values if value not in first])
    assert found.p == pytest.approx(exact, abs=0.02)


def test_what_is_equal_can_not_be_told_apart_and_what_is_less_can() -> None:
    assert mann_whitney([1.0] * 20, [1.0] * 20).p == 1.0
    low, high = [float(n) for n in range(30)], [n + 15.0 for n in range(30)]
    found = mann_whitney(low, high)
    assert found.auc > 0.85
    assert found.p < 1e-5
    assert mann_whitney(high, low).auc == pytest.approx(1 - found.auc)
