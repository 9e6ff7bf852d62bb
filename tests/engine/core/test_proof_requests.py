"""Requests of proofs take what nobody else would miss (docs/decisions/0082)."""

from __future__ import annotations

from collections.abc import Callable

from engine.core.protocol import Look, Prefetch, Purpose, Residency, ServiceClass
from tests.engine.core.fakes import Ask, Bench, adapter, add
from tests.engine.core.simulation import SMALL_ON_CPU, Client, Simulation, percentile
from tests.engine.core.test_adapter_tiers import pool_of, ref, use

BLOCK = 16


def proof(name: str) -> Ask:
    return Ask(
        adapter=name, max_tokens=1, tenant="prover", service_class=ServiceClass.BATCH, purpose=Purpose.PROOF
    )


def test_tokens_of_others_come_as_before_while_proofs_run_back_to_back() -> None:
    chat = [Client(f"chat-{n}", prompt=90, outputs=64, adapters=(f"own-{n}",)) for n in range(6)]
    names = tuple(f"new-{n}" for n in range(200))
    proofs = Client(
        "prover", 48, 1, names, service_class=ServiceClass.BATCH, starts_s=5.0, purpose=Purpose.PROOF
    )
    alone, together = Simulation(SMALL_ON_CPU, chat), Simulation(SMALL_ON_CPU, [*chat, proofs])
    for simulation in (alone, together):
        simulation.run(20.0)
    assert len(together.answers_of("prover")) > 8, "they get on all the same"
    between = [
        percentile([gap for client in chat for gap in each.gaps(client.tenant, 10.0)], 0.95)
        for each in (alone, together)
    ]
    assert between[1] < 1.1 * between[0]


def test_a_proof_leaves_no_kv_and_tells_what_it_took(bench: Bench) -> None:
    asked = add("p", [7] * 4 * BLOCK, proof("new"))
    bench.run(asked)
    ended = bench.ended("p")
    assert ended.outcome == "finished"
    assert bench.lines()[0].purpose == "proof"
    assert bench.loop._blocks.num_in_cache == 0
    bench.run(add("t", [7] * 4 * BLOCK, Ask(adapter="new", max_tokens=1)))
    assert bench.loop._blocks.num_in_cache > 0
    assert bench.ended("t").run_ms == 0.0


def test_a_full_core_begins_no_proof(make_bench: Callable[..., Bench]) -> None:
    """Places beyond the limit are for newcomers; what a newcomer's proof lacks is taken from nobody."""
    bench = make_bench(num_blocks=4_000, reserve_after_s=0.0)
    bench.send(*(add(f"c{n}", [n + 1] * 5, Ask(max_tokens=60)) for n in range(16)))
    bench.step()
    bench.send(add("p", [9] * BLOCK, proof("new")))
    for _ in range(20):
        bench.step()
    assert [s for s in bench.loop._scheduler._admission.running if s.yields] == []
    bench.run()
    assert bench.ended("p").outcome == "finished"
    assert bench.loop._scheduler.counters.preemptions == 0


def test_a_proof_makes_nothing_popular_and_drains_no_slot_at_once() -> None:
    pool, _, _ = pool_of(num_slots=1)
    use(pool, ref("held"), 0.0)
    pool.enter(ref("held"), 10.0)
    pool.pin(ref("held"), 10.0)
    pool.enter(ref("new"), 10.0, yields=True)
    for _ in range(2):
        pool.poll(10.0)
    assert pool._history.popularity("new", 10.0) == 0.0
    for now in (10.0, 12.0, 14.0):  # an ordinary request would have had the slot kept for it by now
        assert not pool.can_pin(ref("new"), now)
        pool.balance(now, lambda _: 100)
    assert pool.can_pin(ref("held"), 14.0)
    for now in (20.5, 21.0):
        assert not pool.can_pin(ref("new"), now)
        pool.balance(now, lambda _: 100)
    assert not pool.can_pin(ref("held"), 21.0), "but nobody waits for ever"


def test_the_core_says_what_it_holds(bench: Bench) -> None:
    def residency() -> Residency:
        bench.send(Look("a"))
        bench.step()
        return next(frame for frame in reversed(bench.transport.sent) if isinstance(frame, Residency))

    assert residency() == Residency("a", device=False, host=False, loading=False, requests=0, running=0)
    bench.send(Prefetch(adapter("a")))
    bench.step()
    bench.step()
    assert (residency().host, residency().device) == (True, False)
    bench.run(add("t", [1, 2, 3], Ask(adapter="a", max_tokens=1)))
    assert (residency().host, residency().device, residency().requests) == (True, True, 0)
