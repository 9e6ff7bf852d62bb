"""The estimate of a step's duration: learns any machine from its steps, and is not thrown by accidents."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core.running_limit import TRUSTED_AFTER, RunningLimit
from engine.core.step_cost import StepCost, StepLoad
from tests.engine.core.fakes import Ask, Bench, add, expected
from tests.engine.core.simulation import LARGE_ON_GPU, SMALL_ON_CPU, Machine

MACHINES = pytest.mark.parametrize("machine", [SMALL_ON_CPU, LARGE_ON_GPU], ids=["cpu", "gpu"])


def step(rows: int, context: int, chunk: int = 0, start: int = 0, adapters: int = 0) -> StepLoad:
    load = StepLoad(adapter_bytes=adapters * 18_000_000)
    for _ in range(rows):
        load.add(context, 1)
    if chunk:
        load.add(start, chunk)
    return load


def some_step(dice: random.Random) -> StepLoad:
    return step(
        rows=dice.randint(1, 32),
        context=dice.randint(16, 2_000),
        chunk=dice.choice([0, 0, 16, 64, 200]),
        start=dice.randint(0, 8_000),
        adapters=dice.randint(0, 16),
    )


def trained(machine: Machine, steps: int, pauses: bool = False) -> StepCost:
    dice, cost = random.Random(1), StepCost()
    for number in range(steps):
        load = some_step(dice)
        pause = 10.0 if pauses and number % 40 == 39 else 1.0
        cost.observe(load, machine.step_ms(load) * dice.gauss(1.0, 0.05) * pause)
    return cost


def worst_error(cost: StepCost, machine: Machine) -> float:
    dice = random.Random(2)
    loads = [some_step(dice) for _ in range(200)]
    return max(abs(cost.estimate_ms(load) / machine.step_ms(load) - 1) for load in loads)


@MACHINES
def test_it_learns_a_machine(machine: Machine) -> None:
    assert worst_error(trained(machine, 300), machine) < 0.15


@MACHINES
def test_the_first_steps_tell_most_of_it(machine: Machine) -> None:
    """Of what they show: the flood that comes next must be bounded from its first chunks on."""
    cost = StepCost()
    for _ in range(3):
        cost.observe(step(8, 200), machine.step_ms(step(8, 200)))
    for start in range(0, 96, 16):
        chunk = step(8, 200, chunk=16, start=start)
        cost.observe(chunk, machine.step_ms(chunk))
    after = step(8, 200, chunk=32, start=96)
    assert cost.estimate_ms(after) == pytest.approx(machine.step_ms(after), rel=0.25)


@MACHINES
def test_pauses_of_the_host_do_not_throw_it(machine: Machine) -> None:
    assert worst_error(trained(machine, 400, pauses=True), machine) < 0.4


def test_it_follows_a_machine_that_becomes_three_times_as_slow() -> None:
    cost, load = trained(SMALL_ON_CPU, 300), step(8, 300)
    for _ in range(60):
        cost.observe(load, 3 * SMALL_ON_CPU.step_ms(load))
    assert cost.estimate_ms(load) == pytest.approx(3 * SMALL_ON_CPU.step_ms(load), rel=0.15)


def test_a_first_step_of_seconds_is_forgotten() -> None:
    cost = StepCost()
    cost.observe(step(1, 1, chunk=64), 20_000.0)
    for _ in range(200):
        cost.observe(step(8, 200), 30.0)
    assert cost.estimate_ms(step(8, 200)) == pytest.approx(30.0, rel=0.05)


def test_what_it_sees_no_more_it_remembers() -> None:
    """An hour of short answers doesn't make it forget what long contexts take."""
    cost = trained(SMALL_ON_CPU, 300)
    for _ in range(5_000):
        cost.observe(step(8, 100), SMALL_ON_CPU.step_ms(step(8, 100)))
    deep = step(8, 100, chunk=64, start=4_096)
    assert cost.estimate_ms(deep) == pytest.approx(SMALL_ON_CPU.step_ms(deep), rel=0.2)


def test_steps_without_a_duration_say_nothing() -> None:
    cost = StepCost()
    before = cost.estimate_ms(step(4, 100))
    cost.observe(step(4, 100), 0.0)
    assert cost.num_observed == 0
    assert cost.estimate_ms(step(4, 100)) == before


@settings(max_examples=60, deadline=None)
@given(
    durations=st.lists(st.floats(1e-3, 1e5), max_size=40),
    seed=st.integers(0, 1_000),
)
def test_no_durations_make_work_free_or_an_estimate_useless(durations: list[float], seed: int) -> None:
    dice, cost = random.Random(seed), StepCost()
    for duration in durations:
        cost.observe(some_step(dice), duration)
    small, large = step(1, 1), step(2, 2_000, chunk=64, start=4_000, adapters=1)
    assert 0 < cost.estimate_ms(small) < cost.estimate_ms(large) < 1e9


@settings(max_examples=100, deadline=None)
@given(
    budget_ms=st.floats(0, 200),
    start=st.integers(0, 30_000),
    most=st.integers(0, 300),
    starts_row=st.booleans(),
    machine=st.sampled_from([SMALL_ON_CPU, LARGE_ON_GPU]),
)
def test_what_fits_is_the_most_whose_estimate_fits(
    budget_ms: float, start: int, most: int, starts_row: bool, machine: Machine
) -> None:
    """One token more would not."""
    cost = TRAINED[machine]

    def added_ms(count: int) -> float:
        load = StepLoad()
        if count:
            load.add(start, count, starts_row=starts_row)
        return cost.estimate_ms(load) - cost.estimate_ms(StepLoad())

    count = cost.fitting_tokens(budget_ms, start, most, starts_row=starts_row)
    assert 0 <= count <= most
    assert added_ms(count) <= budget_ms + 1e-6
    assert count == most or added_ms(count + 1) > budget_ms - 1e-6


TRAINED = {machine: trained(machine, 100) for machine in (SMALL_ON_CPU, LARGE_ON_GPU)}


def test_a_row_in_pieces_weighs_what_it_weighs_whole() -> None:
    whole, pieces = StepLoad(), StepLoad()
    whole.add(100, 48)
    pieces.add(100, 16)
    pieces.add(116, 16, starts_row=False)
    pieces.add(132, 16, starts_row=False)
    assert pieces == whole


# The number of running sequences


def test_the_limit_follows_its_target_slowly_and_stays_once_there() -> None:
    cost, limit, moves = trained(SMALL_ON_CPU, 100), RunningLimit(64, 30.0), [64]
    for tenth in range(300):
        limit.follow(cost, step(min(limit.now, 40), 120), tenth / 10)
        if limit.now != moves[-1]:
            moves.append(limit.now)
    assert all(abs(b - a) <= max(1, a // 4) for a, b in pairwise(moves))
    assert len(moves) < 8
    assert SMALL_ON_CPU.step_ms(step(limit.now, 120)) == pytest.approx(30.0, rel=0.15)


def test_the_limit_comes_back_when_rows_become_cheaper() -> None:
    cost, limit = trained(LARGE_ON_GPU, 100), RunningLimit(64, 8.0)
    limit.now = 4
    for second in range(60):
        limit.follow(cost, step(4, 100), float(second))
    assert limit.now == 64


def test_the_limit_stays_without_a_target_and_while_estimates_are_young() -> None:
    young = StepCost()
    for _ in range(TRUSTED_AFTER - 1):
        young.observe(step(8, 100), 1_000.0)
    for limit in (RunningLimit(64, None), RunningLimit(64, 20.0)):
        limit.follow(young, step(8, 100), 0.0)
        assert limit.now == 64


def test_a_limit_that_fell_preempts_nobody_for_a_newcomer(make_bench: Callable[..., Bench]) -> None:
    """One sequence is preempted for a tenant that runs nothing, once those above the limit have ended."""
    bench = make_bench(num_blocks=2_000)
    short = [add(f"short{i}", [i + 1] * 5, Ask(max_tokens=300)) for i in range(8)]
    long = [add(f"long{i}", [i + 50] * 5, Ask(max_tokens=480)) for i in range(4)]
    bench.send(*short, *long)
    bench.step()
    bench.step()
    admission = bench.loop._scheduler._admission
    assert len(admission.running) == 12
    admission.limit.now = 4
    newcomer = add("new", [90] * 5, Ask(tenant="new", max_tokens=2))
    bench.send(newcomer)
    while not bench.all_ended():
        bench.step()
    assert admission.counters.preemptions == 0
    bench.run()
    assert admission.counters.preemptions == 1
    assert bench.tokens("new") == expected(newcomer)
