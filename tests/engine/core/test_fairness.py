"""Served tokens by tenant, and the turns of adapters: who is next, and for how long nobody is left out."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.fairness import FairShare
from engine.core.limits import MAX_TENANTS_KNOWN, MAX_TENANTS_SHOWN
from engine.core.protocol import ServiceClass
from engine.core.request import Request, Sequence
from engine.core.turns import ROUNDS, AdapterTurns
from tests.engine.core.fakes import Ask, add


def sequence(tenant: str, prompt: int = 100, **ask: object) -> Sequence:
    request = add(tenant, [1] * prompt, Ask(tenant=tenant, **ask))  # type: ignore[arg-type]
    return Request(request, "base", 0, 0.0).sequences[0]


def test_outputs_weigh_twice_and_cached_tokens_next_to_nothing() -> None:
    fair, whole, cached = FairShare(256), sequence("whole"), sequence("cached")
    fair.charge(whole, 100)
    fair.charge(whole, 110)
    assert fair.served("whole") == 100 + 2 * 10
    cached.computed = 80
    fair.charge_cached(cached)
    fair.charge(cached, 100)
    assert fair.served("cached") == pytest.approx(0.05 * 80 + 20)


def test_a_preempted_tenant_does_not_pay_twice() -> None:
    fair, one = FairShare(256), sequence("t")
    fair.charge(one, 105)
    one.computed = 0  # preempted; it computes all of it again, then goes on
    for computed in (64, 105, 106):
        fair.charge(one, computed)
    assert fair.served("t") == 100 + 2 * 6


def test_who_makes_an_adapter_move_pays_for_it() -> None:
    fair = FairShare(256)
    fair.charge_load("t", 20_000_000)
    fair.charge_install("t", 20_000_000)
    assert fair.served("t") == pytest.approx(20 * 4 + 20)


def test_time_without_work_saves_nothing_up() -> None:
    fair = FairShare(256)
    busy = sequence("busy", prompt=10_000)
    fair.enter("idle")
    fair.enter("busy")
    for number in range(1, 101):
        fair.begin_step({"busy"})
        fair.charge(busy, 100 * number)
    fair.begin_step({"busy"})
    fair.enter("idle")
    assert fair.served("idle") == fair.served("busy")


def test_a_tenant_that_is_behind_keeps_its_place_while_it_waits() -> None:
    fair, busy = FairShare(256), sequence("busy", prompt=10_000)
    fair.enter("behind")
    fair.begin_step({"busy", "behind"})
    fair.charge(busy, 5_000)
    fair.begin_step({"busy", "behind"})
    fair.enter("newcomer")
    assert fair.served("behind") == fair.served("newcomer") == 0.0


def test_a_queue_of_ones_own_does_not_age_what_is_in_it() -> None:
    fair = FairShare(256)
    flood, starved = sequence("flood"), sequence("starved", service_class=ServiceClass.BATCH)
    for now in range(31):
        fair.note_prompt(flood, float(now))
    assert fair.rank(flood, 30.0, aging_s=10.0) == 1
    assert fair.rank(starved, 30.0, aging_s=10.0) == 0


def test_an_allowance_is_spent_by_all_prompts_and_comes_back_slowly() -> None:
    fair = FairShare(256)
    assert fair.allowance("t") == 256
    fair.spend_allowance("t", 1_000)
    assert fair.allowance("t") == 0
    for _ in range(10):
        fair.begin_step(set())
    assert fair.allowance("t") == 40
    for _ in range(1_000):
        fair.begin_step(set())
    assert fair.allowance("t") == 256


def test_the_table_has_a_limit_and_keeps_who_is_active_or_owes() -> None:
    fair = FairShare(256)
    owing = sequence("owing", prompt=1_000)
    fair.charge(owing, 1_000)
    for number in range(3 * MAX_TENANTS_KNOWN):
        fair.enter(f"t{number}")
        fair.forget({"t0"})
    assert len(fair._accounts) <= MAX_TENANTS_KNOWN
    assert "t0" in fair._accounts
    assert fair.served("owing") == 1_000
    shown = fair.picture({f"t{number}": number for number in range(500)})
    assert len(shown) == MAX_TENANTS_SHOWN
    assert shown[0].waiting_tokens == 499


# Turns of adapters


@settings(max_examples=100, deadline=None)
@given(
    most=st.integers(1, 6),
    rows=st.lists(st.integers(0, 30), min_size=1, max_size=24),
)
def test_every_adapter_has_its_turn_in_time(most: int, rows: list[int]) -> None:
    turns = AdapterTurns(most)
    wanted = Counter({f"a{i:02d}": count for i, count in enumerate(rows)})
    round_steps = -(-len(wanted) // most)
    bound = ROUNDS * round_steps + round_steps
    last = dict.fromkeys(wanted, 0)
    for step in range(1, 4 * bound):
        chosen = turns.choose(wanted)
        assert len(chosen) == min(most, len(wanted))
        for name in chosen:
            last[name] = step
        assert max(step - each for each in last.values()) <= bound


def test_most_steps_are_those_of_the_adapters_with_most_rows() -> None:
    turns, rows = AdapterTurns(2), Counter({"many": 20, "some": 10, "few": 1, "fewest": 1})
    chosen = [turns.choose(rows) for _ in range(60)]
    filled = sum(rows[name] for step in chosen for name in step) / len(chosen)
    assert filled > 1.4 * 2 * sum(rows.values()) / len(rows)  # plain rotation would give 16 rows a step
    assert sum("fewest" in step for step in chosen) >= 60 // (3 * 2)


def test_newcomers_do_not_push_out_who_waits() -> None:
    turns, seen = AdapterTurns(1), 0
    for step in range(200):
        rows = Counter({"old": 1, **{f"new{step + i}": 5 for i in range(4)}})
        seen += "old" in turns.choose(rows)
    assert seen >= 200 // (3 * 5)
