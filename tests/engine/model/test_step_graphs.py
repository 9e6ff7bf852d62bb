"""Which of the recorded steps a step is computed by."""

from __future__ import annotations

from engine.kernels.lora import GROUPS
from engine.model.step_graphs import ALL, buckets, family_of, rounded_up


def test_families() -> None:
    """The smallest that was recorded and holds all groups that the step's adapters touch."""
    assert family_of(frozenset(), False) == family_of(frozenset(), True) == frozenset()
    assert family_of(frozenset({"qkv"}), False) == {"qkv"}
    assert family_of(frozenset({"o"}), False) == {"qkv", "o"}
    assert family_of(frozenset({"qkv", "down"}), False) == ALL
    assert family_of(frozenset({"qkv"}), True) == ALL
    assert all(family_of(frozenset({group}), False) >= {group} for group in GROUPS)


def test_buckets() -> None:
    assert buckets(1) == (1,)
    assert buckets(8) == (1, 2, 4, 8)
    assert buckets(24) == (1, 2, 4, 8, 16, 24)
    assert [rounded_up(n, (1, 2, 4)) for n in (1, 3, 4, 5)] == [1, 4, 4, 5]
