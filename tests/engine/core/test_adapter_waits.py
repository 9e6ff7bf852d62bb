"""What is kept for adapters that wait, for memory or for a slot: never for one that can't use it, and at
nobody's cost who was promised better."""

from __future__ import annotations

from collections.abc import Callable

from engine.core.adapter_pool import AdapterPool
from engine.core.adapter_rules import AdapterRules
from engine.core.protocol import Abort
from tests.engine.core.fakes import Ask, Bench, add
from tests.engine.core.test_adapter_tiers import pool_of, ref, use

PROMPT = [1, 2, 3, 4, 5]


def load(pool: AdapterPool, *names: str, now: float) -> None:
    """A request for each; their sizes are known."""
    for name in names:
        pool.enter(ref(name), now)
    for _ in range(len(names) + 1):
        pool.poll(now)
    assert set(pool.host) >= set(names)


def run_once(pool: AdapterPool, name: str, now: float) -> None:
    pool.pin(ref(name), now)
    pool.unpin(ref(name))


def test_no_slot_is_kept_for_one_that_has_to_leave_memory() -> None:
    """The large one needs all memory; `z` can't leave it before its turn, and there is one slot for that."""
    pool, _, _ = pool_of(num_slots=1, host=3_000)
    for name in ("x", "z", "w", "big"):
        use(pool, ref(name), 0.0)
    load(pool, "x", "z", "w", now=100.0)
    run_once(pool, "x", 100.0)  # and another request for it waits
    pool.pin(ref("w"), 100.0)
    assert not pool.can_pin(ref("x"), 100.0)
    pool.enter(ref("big"), 100.0)
    pool.poll(100.0)
    pool.poll(101.5)
    assert not pool.can_pin(ref("x"), 101.5)
    pool.balance(101.5, lambda _: 1)  # the slot for x, which is told to leave for the large one
    pool.unpin(ref("w"))
    pool.leave("w")
    waiting = ["x", "z", "big"]
    for tick in range(100):
        now = 101.5 + tick / 10
        pool.poll(now)
        for name in [name for name in waiting if pool.can_pin(ref(name), now)]:
            run_once(pool, name, now)
            pool.leave(name)
            waiting.remove(name)
        pool.balance(now, lambda _: 0)
    assert waiting == []


def test_no_slot_idles_for_a_popular_one_that_has_to_leave_memory() -> None:
    pool, _, _ = pool_of(num_slots=2, host=3_000)
    for name in ("popular", "long", "w", "big"):
        use(pool, ref(name), 0.0)
    load(pool, *["popular"] * 8, "long", "w", now=100.0)
    run_once(pool, "popular", 100.0)
    pool.pin(ref("long"), 100.0)
    assert not pool.can_pin(ref("w"), 100.0), "its slot is kept for its other requests"
    pool.enter(ref("big"), 100.0)
    pool.poll(100.0)
    pool.poll(102.0)
    pool.balance(102.0, lambda _: 9)
    assert not pool.can_pin(ref("popular"), 102.0), "nothing more is admitted on it"
    assert pool.can_pin(ref("w"), 102.0)


def test_only_who_waited_too_long_drives_out_what_others_wait_for() -> None:
    """The large one can't be had: all but `a` run. A hint must not take `a` for that."""
    pool, _, _ = pool_of(host=4_000)
    for name in ("a", "b", "c"):
        use(pool, ref(name, "many"), 0.0)
    use(pool, ref("x", "x"), 0.0)
    use(pool, ref("hinted", "h"), 0.0)
    use(pool, ref("big", "many"), 0.0)
    here = [ref("a", "many"), ref("b", "many"), ref("c", "many"), ref("x", "x")]
    for each in here:
        pool.enter(each, 100.0)
    for _ in range(6):
        pool.poll(100.0)
    for each in here:
        pool.pin(each, 100.0)
    pool.unpin(here[0])
    pool.enter(ref("big", "many"), 100.0)
    pool.prefetch(ref("hinted", "h"), 100.0)
    for now in (100.0, 101.5, 103.0):
        pool.poll(now)
    assert set(pool.host) == {"a", "b", "c", "x"}


def test_no_slot_is_kept_for_an_adapter_whose_waiting_requests_have_left(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(num_slots=2, num_blocks=200, step_s=0.1)

    def send_and_step(steps: int, request: str, name: str, max_tokens: int) -> None:
        bench.send(add(request, PROMPT, Ask(adapter=name, max_tokens=max_tokens)))
        for _ in range(steps):
            bench.step()

    send_and_step(1, "x1", "x", 100)
    send_and_step(5, "z1", "z", 200)
    send_and_step(15, "y1", "y", 5)  # gets the slot of x, which is idle sooner
    send_and_step(15, "x2", "x", 5)  # gets the other one, once z has ended
    assert bench.loop._adapters.snapshot(bench.now).waiting_for_slot == 2
    bench.send(Abort("x2", 1))
    bench.step()
    assert bench.loop._adapters.snapshot(bench.now).waiting_for_slot == 1
    send_and_step(2, "z2", "z", 5)
    assert bench.tokens("z2"), "its slot is kept for nobody"
    bench.run()


def test_no_second_slot_is_kept_for_one_whose_own_is_open_again() -> None:
    """It could run, if it didn't lack blocks."""
    pool, _, _ = pool_of(num_slots=2)
    load(pool, "x", "x", "z", "y", now=0.0)
    for name in ("x", "z"):
        pool.pin(ref(name), 0.0)
    assert not pool.can_pin(ref("y"), 0.0)
    assert not pool.can_pin(ref("y"), 1.5)
    pool.balance(1.5, {"x": 1, "z": 9}.__getitem__)
    for now in (1.5, 2.0):
        assert not pool.can_pin(ref("x"), now), "its slot is kept for y"
    pool.leave("y")
    pool.balance(2.8, {"x": 9, "z": 1}.__getitem__)
    assert pool.can_pin(ref("x"), 2.8)
    assert pool.can_pin(ref("z"), 2.8)


def test_no_slot_is_drained_for_one_that_could_not_run_anyway() -> None:
    """All seats are taken, say, by requests of a better class: nobody asks whether `w` has a slot."""
    pool, _, _ = pool_of(num_slots=1)
    load(pool, "hot", "hot", "w", now=0.0)
    pool.pin(ref("hot"), 0.0)
    assert not pool.can_pin(ref("w"), 0.0)
    pool.balance(5.0, lambda _: 9)
    assert pool.can_pin(ref("hot"), 5.0)
    assert not pool.can_pin(ref("w"), 5.0)
    pool.balance(5.0, lambda _: 9)
    assert not pool.can_pin(ref("hot"), 5.0), "it has waited since the first time"


def test_nobody_leaves_memory_for_a_load_that_could_not_begin_anyway() -> None:
    """The store hangs with its only thread: what it holds up must not hold up what is here."""
    rules = AdapterRules(kept_share=0.5, store_threads=1, store_loads_per_owner=1)
    pool, _, loaders = pool_of(host=4_000, rules=rules)
    for name in ("small", "mine", "more", "big"):
        use(pool, ref(name, name), 0.0)
    for name in ("small", "big"):
        pool.retire(ref(name, name))
    for name in ("mine", "mine", "more"):
        pool.enter(ref(name, name), 100.0)
    for _ in range(4):
        pool.poll(100.0)
    pool.pin(ref("mine", "mine"), 100.0)
    pool.unpin(ref("mine", "mine"))
    loaders.by_hand = True
    for name in ("big", "small"):
        pool.enter(ref(name, name), 100.0)
    for now in (100.0, 101.0, 102.0, 103.0):
        pool.poll(now)
        pool.balance(now, lambda _: 1)
    assert list(loaders.under_way) == ["small"]
    for name in ("mine", "more"):
        assert pool.can_pin(ref(name, name), 103.0)
    pool.leave("small")
    loaders.end("small")
    pool.poll(104.0)
    assert list(loaders.under_way) == ["big"], "it has waited since the first time"
