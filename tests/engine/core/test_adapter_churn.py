"""More adapters than slots, in virtual time: the popular keep theirs, the rest take turns, and a tenant that
thrashes slows itself."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from engine.core.protocol import Tier
from tests.engine.core.simulation import Answer, Client, Machine, Simulation, percentile

MACHINE = Machine(base=10.0, row=0.6, adapter_mb=0.7 / 18, token=0.55, kilo_position=0.0, mega_attended=0.0)
"""10 ms, 0.6 ms a row, 0.7 ms an adapter of 18 MB, 0.55 ms a token of a prompt."""
ADAPTER_BYTES = 18_000_000
WARM_S, END_S = 10.0, 50.0


class Churn(Simulation):
    """Remembers where each request found its adapter."""

    def __init__(self, clients: list[Client], host_adapters: int = 80) -> None:
        self.found: list[tuple[str, bool]] = []
        super().__init__(
            MACHINE,
            clients,
            adapter_bytes=ADAPTER_BYTES,
            num_slots=8,
            host_budget_bytes=host_adapters * ADAPTER_BYTES,
        )
        self._enter = self.adapters.enter
        self.adapters.enter = self._note  # type: ignore[method-assign]

    def _note(self, ref: object, now: float, *, yields: bool = False) -> Tier | None:
        tier = self._enter(ref, now, yields=yields)  # type: ignore[arg-type]
        self.found.append((ref.artefact, tier is Tier.DEVICE))  # type: ignore[attr-defined]
        return tier


@dataclass(frozen=True)
class Felt:
    """What came out after the warm-up. `waits` includes requests that have no token yet."""

    tokens_per_s: float
    resident_ttft: list[float]
    ttft: dict[str, list[float]]  # by the first letter of the adapter

    @staticmethod
    def of(churn: Churn, end_s: float = END_S) -> Felt:
        churn.run(end_s)
        late = [(a, f) for a, f in zip(churn.answers, churn.found, strict=True) if a.arrived >= WARM_S]
        waits: dict[str, list[float]] = {}
        for answer, (name, _) in late:
            waits.setdefault(name[0], []).append(wait_of(answer, churn.now))
        return Felt(
            tokens_per_s=sum(t >= WARM_S for a in churn.answers for t in a.tokens) / (churn.now - WARM_S),
            resident_ttft=[wait_of(a, churn.now) for a, (_, is_resident) in late if is_resident],
            ttft=waits,
        )


def wait_of(answer: Answer, now: float) -> float:
    return answer.ttft if answer.tokens else now - answer.arrived


def streams(count: int, names: list[str], seed: int = 0, tenant: str = "t") -> list[Client]:
    """Each asks for all the adapters in an order of its own, with lengths of its own."""
    clients = []
    for i in range(count):
        order = [name for _ in range(40) for name in random.Random(100 * seed + i).sample(names, len(names))]
        clients.append(Client(tenant, 60 + i * 37 % 70, 40 + i * 29 % 50, tuple(order)))
    return clients


HOT = [f"h{i}" for i in range(8)]
COLD = [f"c{i}" for i in range(32)]


@pytest.fixture(scope="module")
def eight_over_eight() -> Felt:
    return Felt.of(Churn(streams(16, HOT)))


def test_forty_adapters_over_eight_slots_keep_most_of_the_throughput(eight_over_eight: Felt) -> None:
    felt = Felt.of(Churn(streams(16, HOT + COLD)))
    assert felt.tokens_per_s >= 0.6 * eight_over_eight.tokens_per_s
    assert max(max(waits) for waits in felt.ttft.values()) < 6.0, "everyone gets a turn soon"


@pytest.mark.parametrize("num_hot", [6, 8])
def test_cold_adapters_do_not_slow_the_resident_ones(num_hot: int, eight_over_eight: Felt) -> None:
    alone = Felt.of(Churn(streams(12, HOT[:num_hot])))
    crowd = Felt.of(Churn(streams(12, HOT[:num_hot]) + streams(4, COLD, seed=1)))
    limit = 1.5 * percentile(alone.ttft["h"], 0.95)
    assert percentile(crowd.resident_ttft, 0.95) <= limit
    assert len(crowd.resident_ttft) >= 0.5 * sum(map(len, crowd.ttft.values())), "most are resident"
    if num_hot <= 6:  # as many as slots are shielded
        assert percentile(crowd.ttft["h"], 0.95) <= limit
    assert crowd.tokens_per_s >= 0.6 * eight_over_eight.tokens_per_s
    assert max(crowd.ttft["c"]) < 9.0, "the cold ones get their turns"


def test_a_hot_adapter_that_comes_late_gets_a_shielded_slot() -> None:
    """Cold ones fill all slots first."""
    late = [
        Client(c.tenant, c.prompt, c.outputs, c.adapters, starts_s=5.0) for c in streams(12, HOT[:6], seed=2)
    ]
    churn = Churn(streams(6, COLD) + late)
    churn.run(25.0)
    assert set(HOT[:6]) <= set(churn.adapters.device)


def test_what_was_hot_once_makes_way() -> None:
    before = [Client(c.tenant, c.prompt, c.outputs, c.adapters, stops_s=20.0) for c in streams(12, HOT[:6])]
    after = [
        Client(c.tenant, c.prompt, c.outputs, c.adapters, starts_s=20.0)
        for c in streams(12, [f"n{i}" for i in range(8)], seed=3)
    ]
    churn = Churn(before + after)
    churn.run(45.0)
    since = [(a, n) for a, (n, _) in zip(churn.answers, churn.found, strict=True) if a.arrived > 30]
    assert percentile([wait_of(a, churn.now) for a, name in since if name[0] == "n"], 0.95) < 0.5


def test_a_tenant_that_thrashes_slows_itself_alone() -> None:
    """One asks for 300 adapters in turn over memory for 20; the other uses three, at the pace of a person."""
    good = [Client("good", 60, 30, (f"g{i}",), pauses_s=1.0, starts_s=0.1 * i) for i in range(3)]
    evil = streams(13, [f"e{i}" for i in range(300)], tenant="evil")
    alone = Felt.of(Churn(good, host_adapters=20), 35.0)
    churn = Churn(good + evil, host_adapters=20)
    crowd = Felt.of(churn, 35.0)
    snapshot = churn.adapters.snapshot(churn.now)
    assert snapshot.host.evictions["room"] + snapshot.host.evictions["drained"] > 100, "it thrashes"
    # Its own prompts share each step with the others': that part is the scheduler's.
    assert percentile(crowd.ttft["g"], 0.95) <= percentile(alone.ttft["g"], 0.95) + 0.25
    assert percentile(crowd.ttft["e"], 0.5) > 4 * percentile(crowd.ttft["g"], 0.5)
    assert {"g0", "g1", "g2"} <= set(churn.adapters.host), "never loaded again"


def test_slots_do_not_idle_for_adapters_that_were_popular() -> None:
    """Eight adapters are asked for, and then forty alike: the eight have a name, but no requests to match."""
    names = [f"a{i}" for i in range(40)]
    clients = [
        Client("t", 94, 64, tuple(names[(i + 16 * k) % (8 if k < 4 else 40)] for k in range(120)))
        for i in range(16)
    ]
    churn = Churn(clients)
    churn.run(END_S)

    def tokens_in(start_s: float, end_s: float) -> int:
        return sum(start_s <= token < end_s for answer in churn.answers for token in answer.tokens)

    steady = tokens_in(30.0, 50.0) / 4
    assert min(tokens_in(start_s, start_s + 5.0) for start_s in (5.0, 10.0, 15.0, 20.0)) > 0.6 * steady
