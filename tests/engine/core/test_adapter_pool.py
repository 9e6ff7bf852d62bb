"""Where adapters are, who runs on them, and that nobody waits for ever."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from engine.core.adapter_entry import Lane
from engine.core.adapter_loader import LoaderThreads
from engine.core.adapter_pool import AdapterPool
from engine.core.adapter_rules import AdapterRules
from engine.core.limits import CoreConfig
from engine.core.plan import AdapterUnavailable, LoadedAdapter
from engine.core.protocol import (
    AdapterEvent,
    AdapterRef,
    Outcome,
    Prefetch,
    Retire,
    ServiceClass,
    Tier,
)
from tests.engine.core.fakes import Ask, Bench, FakeLoaders, FakeRunner, adapter, add, expected

PROMPT = [1, 2, 3, 4, 5]


def pool_of(
    num_slots: int = 2, host_budget_bytes: int = 10_000, **limits: float
) -> tuple[AdapterPool, FakeRunner, FakeLoaders]:
    runner, loaders = FakeRunner(4), FakeLoaders()
    config = CoreConfig(
        num_blocks=8,
        num_slots=num_slots,
        host_budget_bytes=host_budget_bytes,
        **limits,  # type: ignore[arg-type]
    )
    return AdapterPool(config, runner, loaders), runner, loaders


def resident(pool: AdapterPool, *names: str, now: float = 0.0) -> None:
    for name in names:
        pool.enter(adapter(name), now)
    for _ in range(len(names) + 1):
        pool.poll(now)


def test_slots_are_filled_then_taken_from_the_least_recently_used_idle_adapter() -> None:
    pool, runner, _ = pool_of()
    resident(pool, "a", "b", "c")
    for name in "ab":
        pool.pin(adapter(name), 0.0)
        pool.unpin(adapter(name))
    pool.pin(adapter("c"), 0.0)
    assert sorted(runner.slots.values()) == ["b", "c"]
    assert pool.evictions["device"] == 1


def test_a_slot_in_use_is_never_taken() -> None:
    pool, runner, _ = pool_of()
    resident(pool, "a", "b", "c")
    pool.pin(adapter("a"), 0.0)
    pool.pin(adapter("b"), 0.0)
    assert not pool.can_pin(adapter("c"), 0.0)
    pool.unpin(adapter("b"))
    assert pool.pin(adapter("c"), 0.0) == 1
    assert runner.slots == {0: "a", 1: "c"}


def test_the_epoch_moves_whenever_a_slot_does() -> None:
    pool, _, _ = pool_of(num_slots=1)
    resident(pool, "a", "b")
    epochs = [pool.slot_epoch]
    for name in "aabb":
        pool.pin(adapter(name), 0.0)
        pool.unpin(adapter(name))
        epochs.append(pool.slot_epoch)
    assert epochs[1] == epochs[2] > epochs[0]
    assert epochs[3] == epochs[4] > epochs[2]


def test_host_memory_keeps_its_budget_and_forgets_the_least_recently_used() -> None:
    pool, _, loaders = pool_of(host_budget_bytes=3_000)
    for name in "abcde":
        pool.prefetch(adapter(name), 0.0)
        pool.poll(0.0)
        pool.poll(0.0)
    assert pool.host == ["c", "d", "e"]
    assert loaders.most_under_way == 1
    events = pool.take_events()
    assert [e.artefact for e in events if e.tier is None] == ["a", "b"]


def test_an_adapter_larger_than_host_memory_fails() -> None:
    pool, _, _ = pool_of(host_budget_bytes=999)
    pool.enter(adapter("a"), 0.0)
    pool.poll(0.0)
    (done,) = pool.poll(0.0)
    assert done.loaded is None
    assert "larger" in done.error


def test_what_requests_wait_for_is_not_forgotten_before_its_turn() -> None:
    pool, _, _ = pool_of(host_budget_bytes=1_000, loader_threads=1)
    pool.enter(adapter("a"), 0.0)
    pool.enter(adapter("b"), 0.0)
    for step in range(50):
        pool.poll(float(step))
    assert pool.host == ["a"], "b waits until a had its turn"
    pool.pin(adapter("a"), 50.0)
    pool.unpin(adapter("a"))
    for step in range(50, 60):
        pool.poll(float(step))
    assert pool.host == ["b"]


def test_a_failed_load_is_remembered_for_a_short_time_only() -> None:
    pool, _, loaders = pool_of(failure_memory_s=1.0)
    loaders.failing = {"a"}
    pool.enter(adapter("a"), 0.0)
    pool.poll(0.0)
    pool.poll(0.0)
    pool.leave("a")
    assert pool.failure("a", 0.5) == "corrupt"
    assert pool.failure("a", 1.5) is None
    loaders.failing = set()
    pool.enter(adapter("a"), 1.5)
    pool.poll(1.5)
    pool.poll(1.5)
    assert pool.host == ["a"]


def test_no_more_loads_at_once_than_threads_and_owners_take_turns() -> None:
    pool, _, loaders = pool_of(loader_threads=2)
    loaders.automatic = False
    for i in range(5):
        pool.enter(adapter(f"slow{i}", owner="one"), 0.0)
    pool.enter(adapter("other", owner="two"), 0.0)
    pool.poll(0.0)
    assert [ref.artefact for ref in loaders.under_way] == ["slow0", "other"]


def test_requests_load_before_hints() -> None:
    pool, _, loaders = pool_of(loader_threads=1)
    loaders.automatic = False
    pool.prefetch(adapter("hint"), 0.0)
    pool.enter(adapter("wanted"), 0.0)
    pool.poll(0.0)
    assert [ref.artefact for ref in loaders.under_way] == ["wanted"]


def test_a_load_that_nobody_wants_any_more_is_not_begun() -> None:
    pool, _, loaders = pool_of(loader_threads=1)
    loaders.automatic = False
    pool.enter(adapter("a"), 0.0)
    pool.poll(0.0)
    pool.enter(adapter("b"), 0.0)
    pool.leave("b")
    loaders.complete("a")
    pool.poll(0.0)
    assert loaders.under_way == []
    pool.check(Counter(), Counter({"a": 1}))


@pytest.mark.parametrize("state", ["absent", "host", "slot", "failing", "too many"])
def test_every_hint_is_answered(state: str) -> None:
    pool, _, loaders = pool_of()
    if state in ("host", "slot"):
        resident(pool, "a")
    if state == "slot":
        pool.pin(adapter("a"), 0.0)
    if state == "failing":
        loaders.failing = {"a"}
    if state == "too many":
        for i in range(64):
            pool.prefetch(adapter(str(i)), 0.0)
    pool.take_events()
    pool.prefetch(adapter("a"), 0.0)
    for _ in range(2):
        pool.poll(0.0)
    (event,) = [e for e in pool.take_events() if e.artefact == "a"]
    assert bool(event.error) is (state in ("failing", "too many"))
    assert event.tier == {"absent": Tier.HOST, "host": Tier.HOST, "slot": Tier.DEVICE}.get(state)


def test_a_retired_adapter_goes_once_nothing_runs_on_it(bench: Bench) -> None:
    request = add("r", PROMPT, Ask(adapter="a", max_tokens=20))
    bench.send(request)
    for _ in range(4):
        bench.step()
    bench.send(Retire(adapter("a")))
    bench.step()
    assert bench.loaders.forgotten == []
    bench.run()
    assert bench.tokens("r") == expected(request)
    assert bench.loaders.forgotten == ["a"]
    assert bench.runner.slots == {}
    assert bench.loop._adapters.host == []


def test_retiring_what_is_absent_or_loading_forgets_its_disk_copy(bench: Bench) -> None:
    bench.loaders.automatic = False
    bench.send(Retire(adapter("absent")), Prefetch(adapter("loading")))
    bench.step()
    bench.send(Retire(adapter("loading")))
    bench.step()
    assert bench.loaders.forgotten == ["absent"]
    bench.loaders.complete("loading")
    bench.run()
    assert bench.loaders.forgotten == ["absent", "loading"]
    assert bench.loop._adapters.host == []
    gone = [f.artefact for f in bench.transport.sent if isinstance(f, AdapterEvent) and f.tier is None]
    assert sorted(gone) == ["absent", "loading"]


@pytest.mark.parametrize("host_adapters", [100, 3])
def test_forty_adapters_over_eight_slots_starve_none(
    make_bench: Callable[..., Bench], host_adapters: int
) -> None:
    """Eight hot adapters always have requests, of the best class; thirty-two cold ones ask now and then."""
    bench = make_bench(
        num_blocks=400, num_slots=8, host_budget_bytes=host_adapters * 1_000, step_s=0.05, max_running=32
    )
    bench.runner.record = False
    chance = random.Random(7)
    asked: dict[str, float] = {}

    def ask(name: str, service_class: ServiceClass) -> None:
        request = f"{name}:{len(asked)}"
        length = chance.randrange(5, 30)
        asked[request] = bench.now
        prompt = [chance.randrange(1, 90) for _ in range(length)]
        bench.send(add(request, prompt, Ask(adapter=name, max_tokens=length, service_class=service_class)))

    def hot_in_flight() -> Counter[str]:
        return Counter(r.artefact for r in bench.loop._open if r.artefact and r.artefact[0] == "h")

    for step in range(150):
        open_hot = hot_in_flight()
        for i in range(8):
            if open_hot[f"h{i}"] < 4:
                ask(f"h{i}", ServiceClass.INTERACTIVE)
        if step % 5 == 0:
            ask(f"c{step // 5 % 32}", ServiceClass.STANDARD)
        bench.step()
    bench.run(limit=10_000)
    assert all(frame.outcome is Outcome.FINISHED for frame in bench.all_ended())
    assert len(bench.all_ended()) == len(asked)
    waits = [frame.timings.queue_ms / 1000 for frame in bench.all_ended() if frame.request[0] == "c"]
    assert len(waits) == 30
    limit_s = 30.0
    assert max(waits) < limit_s, f"the longest wait was {max(waits):.1f} s"


def test_an_idle_core_wakes_for_a_load_that_its_owners_rate_held_back(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(adapters=AdapterRules(loads_per_s=20.0, load_burst=1.0))
    bench.send(add("1", PROMPT, Ask(adapter="a")), add("2", PROMPT, Ask(adapter="b")))
    bench.step()
    assert bench.loop._idle_s() <= 0.05
    bench.run()
    assert [ended.outcome for ended in bench.all_ended()] == [Outcome.FINISHED] * 2


def test_a_hint_that_is_late_loads_nothing(bench: Bench) -> None:
    bench.loaders.automatic = False
    for name in "abcd":
        bench.send(Prefetch(adapter(name, owner=name)))
    bench.step()  # all threads are busy
    bench.send(Prefetch(adapter("late"), within_ms=5))
    bench.step()
    bench.step()
    bench.loaders.automatic = True
    bench.run()
    (event,) = [f for f in bench.transport.sent if isinstance(f, AdapterEvent) and f.artefact == "late"]
    assert "time passed" in event.error
    assert "late" not in bench.loop._adapters.host


class SlowSource:
    """Loads by name: `slow*` only once they are let go, `bad*` never, `broken*` with an unexpected error."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.forgotten: list[str] = []

    def is_near(self, ref: AdapterRef) -> bool:
        return not ref.artefact.startswith(("slow", "bad", "broken"))

    def load(self, ref: AdapterRef, *, fetch: bool) -> LoadedAdapter:
        if ref.artefact.startswith("slow"):
            self.go.wait(10)
        if ref.artefact.startswith("bad"):
            raise AdapterUnavailable("no such adapter")
        if ref.artefact.startswith("broken"):
            raise ZeroDivisionError
        return LoadedAdapter(ref.artefact, 10, Tier.DISK, 1.0)

    def forget(self, ref: AdapterRef) -> None:
        self.forgotten.append(ref.artefact)


def collect(loaders: LoaderThreads, count: int) -> dict[str, str | None]:
    done: dict[str, str | None] = {}
    limit = time.monotonic() + 10
    while len(done) < count and time.monotonic() < limit:
        done.update({one.adapter.artefact: one.error or None for one in loaders.finished()})
        time.sleep(0.005)
    return done


def test_loader_threads_load_side_by_side_and_report_each_end() -> None:
    source, woken = SlowSource(), threading.Event()
    loaders = LoaderThreads(source, {Lane.DISK: 1, Lane.STORE: 4}, woken.set)
    for name in ("slow1", "slow2", "fast", "bad", "broken"):
        loaders.start(adapter(name), Lane.STORE)
    first = collect(loaders, 3)
    assert set(first) == {"fast", "bad", "broken"}, "two slow loads hold up nobody"
    assert first["fast"] is None
    assert first["bad"] == "no such adapter"
    assert "ZeroDivisionError" in str(first["broken"])
    assert woken.is_set()
    source.go.set()
    assert collect(loaders, 2) == {"slow1": None, "slow2": None}
    loaders.forget(adapter("x"))
    loaders.close()
    assert source.forgotten in ([], ["x"])
