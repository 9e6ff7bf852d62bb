"""Which bucket is whose, before and after weights change."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.aliases.spread import BUCKETS, MAX_RANGES, Spread, bucket_of, heaviest, spread_over


@st.composite
def weights(draw: st.DrawFn) -> dict[int, int]:
    versions = draw(st.lists(st.integers(1, 9), min_size=2, max_size=5, unique=True))
    cuts = sorted(draw(st.sets(st.integers(1, 99), min_size=len(versions) - 1, max_size=len(versions) - 1)))
    ends = [*cuts, 100]
    return {version: end - begin for version, begin, end in zip(versions, [0, *cuts], ends, strict=True)}


def layout(spread: Spread) -> list[int]:
    return [spread.version_of(bucket) for bucket in range(BUCKETS)]


@settings(max_examples=60, deadline=None)
@given(st.lists(weights(), min_size=2, max_size=6))
def test_a_change_moves_what_has_to_move_and_nothing_else(steps: list[dict[int, int]]) -> None:
    before = spread_over(steps[0], None)
    assert before is not None
    for wanted in steps[1:]:
        after = spread_over(wanted, before)
        assert after is not None
        assert after.seed == before.seed
        assert after.weights == dict(sorted(wanted.items()))
        assert after.ranges[-1][0] == BUCKETS
        assert len(after.ranges) <= MAX_RANGES
        was, now = layout(before), layout(after)
        moved = sum(one != other for one, other in zip(was, now, strict=True))
        gained = sum(max(0, part - before.weights.get(version, 0)) for version, part in wanted.items())
        assert moved == gained * BUCKETS // 100
        assert Spread.of_row(after.row()) == after
        before = after


def test_one_version_needs_no_spread_and_a_new_spread_chooses_anew() -> None:
    assert spread_over({3: 100}, None) is None
    one, other = spread_over({3: 95, 4: 5}, None), spread_over({3: 95, 4: 5}, None)
    assert one is not None
    assert other is not None
    assert one.ranges == other.ranges == ((9500, 3), (10_000, 4))
    tried = sum(one.version_of(bucket_of(one.seed, str(n).encode())) == 4 for n in range(2_000))
    assert one.seed != other.seed
    assert 40 < tried < 180  # 100 of 2,000, give or take
    assert heaviest({3: 50, 2: 50}) == 2


def test_buckets_are_even() -> None:
    seed = b"s" * 16
    tenths = Counter(bucket_of(seed, str(n).encode()) // 1000 for n in range(20_000))
    assert all(1_700 < count < 2_300 for count in tenths.values())
    assert sorted(tenths) == list(range(10))
