"""The router in virtual time: hot adapters, many adapters, lost replicas, sessions, prefixes."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.replicas.driver import ReplicaView
from gateway.replicas.memory import TenantMemory
from gateway.replicas.placement import SHRINK_S, Traffic, rank
from gateway.replicas.registry import Registry
from gateway.replicas.replica import LOAD_TOKENS, Replica
from gateway.replicas.routing import BOUND, FLOOR_TOKENS, SWAP_BURST, SWAPS_PER_S, Router
from gateway.replicas.want import PREFIX_TOKENS, Want, prefix_chain
from tests.gateway.replicas.fleet import Ask, Clock, Fleet, least_busy, prefer_loaded, replica

TOKENS = 2_000


def hot_and_tail(seconds: int, per_s: int, *, hot: float, tail: int, seed: int = 1) -> list[Ask]:
    """`hot` of the requests are for one adapter, the rest for `tail` others alike."""
    draw = random.Random(seed)
    asks = []
    for number in range(seconds * per_s):
        artefact = "hot" if draw.random() < hot else f"tail-{draw.randrange(tail)}"
        asks.append(Ask(number / per_s, Want(artefact, TOKENS, "t"), takes_s=draw.uniform(0.5, 1.5)))
    return asks


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def test_a_hot_adapter_is_served_from_as_many_replicas_as_it_needs_and_the_others_do_not_starve() -> None:
    asks = hot_and_tail(60, 48, hot=0.7, tail=16)
    ours, pinned = Fleet(8), Fleet(8, policy=prefer_loaded)
    ours.run(asks)
    pinned.run(asks)
    assert 5 <= ours.router.traffic.homes("hot") <= 8
    by_replica = [ours.served["hot", one.url] for one in ours.replicas]
    assert sum(number > 100 for number in by_replica) >= 5
    tail = [wait for name, waits in ours.waits.items() if name != "hot" for wait in waits]
    assert quantile(tail, 0.99) < 1.0
    assert quantile(ours.waits["hot"], 0.99) < 1.0
    assert max(pinned.served["hot", one.url] for one in pinned.replicas) > 0.9 * sum(
        pinned.served["hot", one.url] for one in pinned.replicas
    )
    assert ours.most_over_mean < 2.0 < pinned.most_over_mean


def test_many_adapters_cause_few_loads() -> None:
    """As many adapters as there are slots in all: each could have one, and nearly keeps it."""
    asks = hot_and_tail(60, 24, hot=0.3, tail=24)
    ours, pinned, spread = Fleet(8), Fleet(8, policy=prefer_loaded), Fleet(8, policy=least_busy)
    for fleet in (ours, pinned, spread):
        fleet.run(asks)
    assert ours.loads < 0.25 * spread.loads
    swaps = 8 * (SWAP_BURST + 60 * SWAPS_PER_S)
    assert ours.loads < pinned.loads + 2 * swaps, "each may push out one that has to come back"
    assert ours.most_over_mean < pinned.most_over_mean


def test_replicas_that_are_equal_take_turns() -> None:
    fleet = Fleet(5)
    fleet.run([Ask(n * 2.0, Want(None, TOKENS)) for n in range(50)])
    assert {fleet.served[None, one.url] for one in fleet.replicas} == {10}


def test_a_small_difference_loads_no_adapter_elsewhere() -> None:
    fleet = Fleet(4)
    fleet.run([Ask(n * 0.4, Want("a", 500)) for n in range(100)])
    assert fleet.loads == 1


def test_a_lost_replicas_adapters_move_and_nobody_elses_and_they_come_back() -> None:
    fleet = Fleet(6)
    registry, router = fleet.registry, fleet.router
    members = tuple(fleet.replicas)

    def homes() -> dict[str, Replica]:
        return {
            f"a{n}": router.homes(f"a{n}", [one for one in members if one.usable], members)[0]
            for n in range(200)
        }

    before = homes()
    lost = members[2]
    registry._hear(lost, None, "gone")
    after = homes()
    assert {name for name in before if before[name] is not after[name]} == {
        name for name, home in before.items() if home is lost
    }
    assert len({after[name] for name, home in before.items() if home is lost}) == 5
    registry._hear(lost, ReplicaView(), "")
    assert homes() == before


def test_homes_are_spread_evenly() -> None:
    members = [replica(f"r{n}", Clock()) for n in range(8)]
    found = Counter(rank(f"adapter-{n}", members)[0].url for n in range(4_000))
    assert all(350 < number < 650 for number in found.values())


def test_homes_fall_slowly_and_one_at_a_time() -> None:
    clock = Clock()
    traffic = Traffic(clock)
    for _ in range(20):
        traffic.begin("a", 10_000, 50_000, 4)
        clock.now += 1
    assert traffic.homes("a") == 4
    for _ in range(20):
        traffic.end("a", 10_000)
    clock.now += 120
    seen = []
    for _ in range(round(5 * SHRINK_S)):
        traffic.begin("b", 10_000, 50_000, 4)
        traffic.begin("a", 1, 50_000, 4)
        traffic.end("a", 1)
        clock.now += 1
        seen.append(traffic.homes("a"))
    assert seen[0] == 4
    assert seen[-1] == 1
    assert all(later in (earlier, earlier - 1) for earlier, later in itertools.pairwise(seen))
    changes = [at for at in range(1, len(seen)) if seen[at] != seen[at - 1]]
    assert all(later - earlier >= SHRINK_S for earlier, later in itertools.pairwise(changes))


def test_one_home_does_not_become_two_because_of_one_lone_request() -> None:
    traffic = Traffic(Clock())
    traffic.begin("a", 1_000, 250, 4)
    assert traffic.homes("a") == 1


@settings(max_examples=200, deadline=None)
@given(
    loads=st.lists(st.integers(0, 200_000), min_size=2, max_size=12),
    resident=st.sets(st.integers(0, 11)),
    tokens=st.integers(1, 20_000),
)
def test_nothing_is_sent_above_the_bound_while_the_budget_lasts(
    loads: list[int], resident: set[int], tokens: int
) -> None:
    clock = Clock()
    members = [replica(f"r{n}", clock, in_flight_tokens=load) for n, load in enumerate(loads)]
    for n in resident & set(range(len(members))):
        members[n].see(ReplicaView(device=frozenset({"a"}), host=frozenset({"a"})))
    bound = max(BOUND * sum(loads) / len(loads), FLOOR_TOKENS)
    router = Router(clock)
    for artefact in ("a", None):
        chosen = router.choose(members, Want(artefact, tokens))
        assert chosen is not None
        assert chosen.load <= bound


def test_a_replicas_swap_budget_is_spent_and_comes_back() -> None:
    clock = Clock()
    busy, free = replica("r0", clock), replica("r1", clock)
    held = frozenset(f"a{n}" for n in range(50))
    busy.see(ReplicaView(device=held, host=held))
    busy.in_flight_tokens = 100_000
    router = Router(clock)

    def num_spilled(names: list[str]) -> int:
        spilled = 0
        for name in names:
            want = Want(name, 10)
            chosen = router.choose([busy, free], want)
            assert chosen is not None
            router.note(chosen, want, [busy, free])
            spilled += chosen is free
        return spilled

    names = sorted(held)
    assert num_spilled(names[:40]) == SWAP_BURST
    clock.now += 2 / SWAPS_PER_S
    assert num_spilled(names[40:]) == 2


def test_a_load_that_was_asked_for_is_not_asked_for_elsewhere() -> None:
    fleet = Fleet(4)
    want = Want("a", 100)
    first = fleet.registry.choose(want)
    assert first is not None
    fleet.registry.send(first, want)
    assert [fleet.registry.choose(want) for _ in range(5)] == [first] * 5


def test_the_beginning_of_a_prompt_finds_its_cache() -> None:
    fleet = Fleet(4)
    system = list(range(600))
    chain = prefix_chain([*system, *range(5)])
    assert len(chain) == sum(tokens <= 605 for tokens in PREFIX_TOKENS)
    fleet.registry.send(first := fleet.replicas[3], Want(None, 100, "t", chain))
    again = Want(None, 100, "t", prefix_chain([*system, *range(1_000, 1_300)]))
    assert fleet.registry.choose(again) is first
    strangers = Want(None, 100, "u", chain)
    assert fleet.registry.choose(strangers) is not first
    fleet.registry._hear(first, None, "gone")
    fleet.registry._hear(first, ReplicaView(), "")
    assert fleet.registry.choose(again) is not first, "its cache is empty after a restart"


def test_a_cached_prefix_does_not_outweigh_a_great_load() -> None:
    fleet = Fleet(4, running=1_000)
    chain = prefix_chain(list(range(1_100)))
    taken: Counter[str] = Counter()
    for _ in range(64):
        want = Want(None, 2_000, "t", chain)
        chosen = fleet.registry.choose(want)
        assert chosen is not None
        fleet.registry.send(chosen, want)
        taken[chosen.url] += 1
    assert max(taken.values()) <= 1.25 * 16 + 2


def test_a_session_stays_with_its_replica_while_that_lives() -> None:
    fleet = Fleet(4, running=1_000)
    registry = fleet.registry
    want = Want(None, 100, "t", session=7)
    first = registry.choose(want)
    assert first is not None
    registry.send(first, want)
    first.in_flight_tokens += 3_000
    assert registry.choose(want) is first
    first.in_flight_tokens += 100_000
    elsewhere = registry.choose(want)
    assert elsewhere is not first, "no session may overload its replica"
    assert elsewhere is not None
    registry.send(elsewhere, want)
    first.in_flight_tokens -= 100_000
    assert registry.choose(want) is first, "one that went elsewhere comes back"
    assert registry.choose(Want(None, 100, "u", session=7)) is not first
    first.draining = True
    registry.note_change()
    moved = registry.choose(want)
    assert moved is not first
    assert moved is not None
    registry.send(moved, want)
    first.draining = False
    registry.note_change()
    assert registry.choose(want) is moved


def test_memory_is_bounded_and_a_flood_forgets_its_own() -> None:
    memory = TenantMemory(100)
    quiet = replica("r", Clock())
    for name in range(10):
        memory.put("quiet", name, ((quiet, 0),))
    for name in range(10_000):
        memory.put("flood", name, ((quiet, 0),))
    assert len(memory) == 100
    assert len(memory.of("quiet")) == 10
    for tenant in range(1_000):
        memory.put(tenant, 1, ((quiet, 0),))
    assert len(memory) == 100
    assert len(memory.of("quiet")) == 0


@pytest.mark.parametrize("taken_out", ["drained", "unfit", "open"])
def test_who_may_not_take_anything_gets_nothing(taken_out: str) -> None:
    fleet = Fleet(3)
    out = fleet.replicas[0]
    match taken_out:
        case "drained":
            out.draining = True
        case "unfit":
            out.unfit = "other weights"
        case _:
            for _ in range(5):
                out.breaker.fail()
    fleet.registry.note_change()
    fleet.run([Ask(n * 0.1, Want(f"a{n % 20}", TOKENS)) for n in range(40)])
    assert not [url for _, url in fleet.served if url == out.url]


def test_a_half_open_breaker_lets_one_request_through() -> None:
    fleet = Fleet(1)
    only = fleet.replicas[0]
    for _ in range(5):
        fleet.registry.send(only, Want(None, 10)).fail()
    assert fleet.registry.choose() is None
    fleet.clock.now += 5
    probe = fleet.registry.send(only, Want(None, 10))
    assert fleet.registry.choose() is None
    probe.dismiss()
    probe.release()
    assert fleet.registry.choose() is only
    probe = fleet.registry.send(only, Want(None, 10))
    probe.succeed()
    assert fleet.registry.choose() is only


def test_a_load_costs_what_it_costs() -> None:
    held = replica("r", Clock())
    assert held.residency("a") == 0.0
    held.see(ReplicaView(host=frozenset({"a"})))
    assert held.residency("a") == 0.6
    held.see(ReplicaView())
    assert held.residency("a") == 0.2, "what was in memory lies on its disk"
    held.forget("a")
    assert held.residency("a") == 0.0
    assert LOAD_TOKENS * (1 - held.residency(None)) == 0
    assert isinstance(Registry([held]).choose(), Replica)
