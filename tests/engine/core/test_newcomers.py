"""Places beyond the running limit, for tenants that run nothing (docs/decisions/0079)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine.core.limits import CoreConfig, num_newcomers
from engine.core.request import Sequence
from tests.engine.core.fakes import Ask, Bench, add, expected
from tests.engine.core.simulation import SMALL_ON_CPU, Client, Simulation, percentile


def running(bench: Bench) -> list[Sequence]:
    return bench.loop._scheduler._admission.running


def tenants(bench: Bench) -> list[str]:
    return sorted(s.request.add.tenant for s in running(bench) if s.request.add.tenant != "crowd")


def send(bench: Bench, name: str, count: int, tenant: str, **more: int) -> None:
    ask = Ask(tenant=tenant, max_tokens=200, **more)  # type: ignore[arg-type]  # numbers only
    bench.send(*(add(f"{name}{number}", [number + 1] * 5, ask) for number in range(count)))


def test_a_crowd_stays_at_the_limit_and_each_newcomer_has_one_place(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=4_000)  # 16 at a time, and 2 newcomers
    send(bench, "c", 30, "crowd")
    bench.step()
    bench.step()
    assert len(running(bench)) == 16
    send(bench, "a", 3, "a")
    bench.step()
    bench.step()
    assert tenants(bench) == ["a"]
    send(bench, "b", 1, "b", choices=2)
    bench.step()
    bench.step()
    assert tenants(bench) == ["a", "b"]
    send(bench, "d", 1, "d")
    bench.step()
    bench.step()
    assert tenants(bench) == ["a", "b"]
    assert len(running(bench)) == 18
    assert bench.loop._scheduler.counters.preemptions == 0


def test_what_ends_makes_room_for_the_next_newcomer_and_not_for_the_crowd(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(num_blocks=4_000, reserve_after_s=1e9)
    send(bench, "c", 40, "crowd")
    bench.step()
    first = [
        add(f"n{number}", [90 + number] * 5, Ask(tenant=f"n{number}", max_tokens=3)) for number in range(5)
    ]
    bench.send(*first)
    most, begun = 0, set[str]()
    while len(begun) < len(first):
        bench.step()
        crowd = [s for s in running(bench) if s.request.add.tenant == "crowd"]
        most = max(most, len(crowd))
        begun |= {s.request.add.tenant for s in running(bench)} - {"crowd"}
        assert len(running(bench)) <= 18
    assert most == 16
    bench.run()
    assert all(bench.tokens(each.request) == expected(each) for each in first)


@pytest.mark.parametrize(
    ("limit", "step_tokens", "places"), [(64, 256, 8), (16, 17, 0), (16, 18, 1), (7, 64, 0)]
)
def test_decoding_leaves_room_for_prompts_all_the_same(limit: int, step_tokens: int, places: int) -> None:
    assert num_newcomers(limit, step_tokens) == places
    config = CoreConfig(num_blocks=64, max_running=limit, step_tokens=step_tokens)
    assert config.max_running + config.newcomers < config.step_tokens


def test_a_quiet_tenant_begins_at_once_beside_a_crowd() -> None:
    """Four times as many as may run, all of which began together and end together."""
    quiet = Client("quiet", prompt=40, outputs=8, starts_s=5.0, pauses_s=1.0)
    crowd = [Client("crowd", prompt=40, outputs=64)] * 64
    simulation = Simulation(SMALL_ON_CPU, [*crowd, quiet], max_running=16)
    simulation.run(40.0)
    waits = [answer.ttft for answer in simulation.answers_of("quiet", 5.0)]
    between = percentile(simulation.gaps("crowd"), 0.5)
    assert len(waits) > 15
    assert max(waits) < 4 * between


def test_a_tenant_that_runs_little_waits_for_no_end_of_the_crowd() -> None:
    """Its streams overlap: the second has a place while the first still has its own."""
    quiet = [Client("quiet", prompt=40, outputs=32, starts_s=5.0 + 0.3 * n, pauses_s=0.7) for n in range(3)]
    crowd = [Client("crowd", prompt=40, outputs=64)] * 256
    simulation = Simulation(SMALL_ON_CPU, [*crowd, *quiet], max_running=64)
    simulation.run(60.0)
    waits = [answer.ttft for answer in simulation.answers_of("quiet", 5.0)]
    between = percentile(simulation.gaps("crowd"), 0.5)
    assert len(waits) > 30
    assert max(waits) < 4 * between


def test_places_beyond_the_limit_are_shared_by_how_much_runs(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(num_blocks=4_000, max_running=64, step_tokens=256)  # and 8 newcomers
    send(bench, "c", 100, "crowd")
    bench.step()
    bench.step()
    send(bench, "a", 9, "a")
    for _ in range(3):
        bench.step()
    assert tenants(bench) == ["a"] * 4  # which leaves as many
    send(bench, "b", 9, "b")
    for _ in range(3):
        bench.step()
    assert tenants(bench) == ["a"] * 4 + ["b"] * 2
    send(bench, "d", 2, "d")
    for _ in range(3):
        bench.step()
    assert tenants(bench) == ["a"] * 4 + ["b"] * 2 + ["d"]
