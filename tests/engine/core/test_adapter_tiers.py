"""Budgets, claims, rates and lanes: what each owner may keep, and what none can take from the others."""

from __future__ import annotations

import queue
import threading

import pytest

from engine.core.adapter_entry import Lane
from engine.core.adapter_history import History
from engine.core.adapter_loader import LoaderThreads
from engine.core.adapter_pool import AdapterPool
from engine.core.adapter_rates import LoadRates
from engine.core.adapter_rules import MAX_HISTORY, MAX_OWNERS, AdapterRules
from engine.core.limits import CoreConfig
from engine.core.plan import LoadedAdapter, NotNear
from engine.core.protocol import AdapterRef, Tier
from tests.engine.core.fakes import FakeRunner
from tests.engine.core.test_adapter_states import HandLoaders

KEPT = AdapterRules(kept_share=0.5, host_idle_s=60.0)


class Bytes(HandLoaders):
    """All adapters have the same size, those named `big*` three times as much; loads end at the next poll."""

    def __init__(self) -> None:
        super().__init__()
        self.by_hand = False
        self.started: list[str] = []
        self.load_ms: dict[str, float] = {}
        self.refs: dict[str, AdapterRef] = {}

    def start(self, adapter: AdapterRef, lane: Lane) -> None:
        super().start(adapter, lane)
        self.started.append(adapter.artefact)
        self.refs[adapter.artefact] = adapter
        if not self.by_hand:
            self.end(adapter.artefact)

    def loaded(self, name: str, lane: Lane) -> LoadedAdapter:
        size = 3_000 if name.startswith("big") else 1_000
        tier = Tier.DISK if lane is Lane.DISK else Tier.STORE
        return LoadedAdapter(name, size, tier, self.load_ms.get(name, 1.0), size)


def pool_of(
    num_slots: int = 8, host: int = 10_000, device: int | None = None, rules: AdapterRules = KEPT
) -> tuple[AdapterPool, FakeRunner, Bytes]:
    runner, loaders = FakeRunner(4), Bytes()
    config = CoreConfig(
        num_blocks=8,
        num_slots=num_slots,
        host_budget_bytes=host,
        device_budget_bytes=device,
        loader_threads=2,
        adapters=rules,
    )
    return AdapterPool(config, runner, loaders), runner, loaders


def ref(name: str, owner: str = "o") -> AdapterRef:
    return AdapterRef(artefact=name, owner=owner)


def use(pool: AdapterPool, adapter: AdapterRef, now: float, times: int = 1) -> bool:
    """So many requests, one after the other; whether they could run."""
    for _ in range(times):
        pool.enter(adapter, now)
        for _ in range(3):
            pool.poll(now)
        can = pool.can_pin(adapter, now)
        if can:
            pool.pin(adapter, now)
            pool.unpin(adapter)
        pool.leave(adapter.artefact)
    return can


def test_slots_keep_to_the_devices_bytes() -> None:
    pool, runner, _ = pool_of(device=3_500)
    for name in ("a", "b", "c"):
        assert use(pool, ref(name), 0.0)
    assert use(pool, ref("big"), 10.0)
    assert set(runner.slots.values()) == {"big"}, "all three had to make way"
    assert pool.snapshot(10.0).device.used_bytes == 3_000
    assert use(pool, ref("a"), 20.0)
    assert set(runner.slots.values()) == {"a"}


def test_a_large_adapter_waits_for_bytes_that_small_ones_can_not_take_meanwhile() -> None:
    pool, _, _ = pool_of(device=3_000)
    for name in ("a", "b", "c"):
        use(pool, ref(name), 0.0)
        pool.enter(ref(name), 0.0)
        pool.pin(ref(name), 0.0)
    for name in ("big", "d"):
        pool.enter(ref(name), 1.0)
    for _ in range(3):
        pool.poll(1.0)
    for now in (1.0, 3.0):
        assert not pool.can_pin(ref("big"), now)
    pool.balance(3.0, lambda _: 1)
    pool.unpin(ref("a"))
    assert not pool.can_pin(ref("d"), 3.0), "those bytes are kept"
    pool.unpin(ref("b"))
    pool.unpin(ref("c"))
    assert pool.can_pin(ref("big"), 3.0)


def test_one_that_never_fits_the_device_fails() -> None:
    pool, _, _ = pool_of(device=2_000)
    pool.enter(ref("big"), 0.0)
    pool.poll(0.0)
    (done,) = pool.poll(0.0)
    assert "device memory" in done.error


def test_the_popular_and_the_slow_to_load_stay_in_memory() -> None:
    rules = AdapterRules(kept_share=0.0)
    pool, _, loaders = pool_of(host=3_000, rules=rules)
    loaders.load_ms = {"slow": 500.0}
    use(pool, ref("slow"), 0.0)
    use(pool, ref("popular"), 0.0, times=20)
    for i in range(10):
        use(pool, ref(f"once{i}"), 1.0 + i)
    assert pool.host[:2] == ["slow", "popular"], "the least recently used would have left"
    for i in range(600):
        use(pool, ref(f"later{i}"), 20.0 + i / 10)
    assert "popular" not in pool.host, "what nobody asks for ages"


def test_an_owners_newest_stay_through_anothers_churn_until_long_unused() -> None:
    pool, _, _ = pool_of(host=6_000)
    use(pool, ref("mine", "a"), 0.0)
    for i in range(20):
        use(pool, ref(f"theirs{i}", "b"), 1.0 + i)
    assert "mine" in pool.host
    for i in range(20):
        use(pool, ref(f"more{i}", "b"), 62.0 + i)
    assert "mine" not in pool.host


def test_an_owner_above_its_share_makes_room_out_of_its_own() -> None:
    rules = AdapterRules(kept_adapters=0, kept_share=0.0)
    pool, _, _ = pool_of(host=6_000, rules=rules)
    for i in range(2):
        use(pool, ref(f"mine{i}", "a"), 0.0)
    for i in range(10):
        use(pool, ref(f"theirs{i}", "b"), 1.0 + i, times=5)
    assert {"mine0", "mine1"} <= set(pool.host), "though they are worth less"
    for i in range(2, 4):
        use(pool, ref(f"mine{i}", "a"), 20.0 + i)
    owners = {state.owner: state.host_adapters for state in pool.snapshot(30.0).owners}
    assert owners in ({"a": 3, "b": 3}, {"a": 4, "b": 2}), "up to its share it takes from the other"


def test_one_artefact_is_held_once_whoever_names_it() -> None:
    pool, _, loaders = pool_of()
    for _ in range(3):
        pool.enter(ref("same"), 0.0)
    pool.poll(0.0)
    pool.poll(0.0)
    assert loaders.started == ["same"]
    assert pool.snapshot(0.0).host.used_bytes == 1_000


def test_an_owners_loads_keep_to_its_rate_and_slow_nobody_else() -> None:
    rules = AdapterRules(loads_per_s=1.0, load_burst=2.0)
    pool, _, loaders = pool_of(rules=rules, host=100_000)
    loaders.near = {f"{name}{i}" for name in "tn" for i in range(6)}
    for i in range(6):
        pool.enter(ref(f"t{i}", "thrasher"), 0.0)
    for _ in range(4):
        pool.poll(0.0)
    assert loaders.started == ["t0", "t1"]
    assert pool.next_load_s(0.0) == pytest.approx(1.0)
    (state,) = pool.snapshot(0.0).owners
    assert state.pending == 4
    assert state.throttled_ms == pytest.approx(1000.0)
    pool.enter(ref("n0", "neighbour"), 0.0)
    pool.poll(0.0)
    assert loaders.started[-1] == "n0"
    for step in range(1, 5):
        pool.poll(float(step))
    assert loaders.started[3:] == ["t2", "t3", "t4", "t5"]


def test_bytes_are_paid_for_by_the_next_loads_wait() -> None:
    rates = LoadRates(AdapterRules(load_bytes_per_s=100.0, load_burst_bytes=200.0))
    rates.charge("o", 0.0, loads=1, num_bytes=500)
    assert rates.wait_s("o", 0.0) == pytest.approx(3.0)
    assert rates.wait_s("o", 3.0) == 0.0
    assert rates.wait_s("o", 3.0, is_hint=True) == pytest.approx(1.0), "hints leave half to requests"
    assert rates.wait_s("other", 0.0) == 0.0


def test_tables_by_owner_and_adapter_are_bounded() -> None:
    rates, history = LoadRates(AdapterRules()), History(60.0)
    for i in range(MAX_OWNERS + 10):
        rates.charge(str(i), 0.0, loads=1)
    assert len(rates) == MAX_OWNERS
    rates.prune(1_000.0)
    assert len(rates) == 0
    for i in range(MAX_HISTORY + 10):
        history.count_request(str(i), 0.0)
    assert history.popularity("9", 0.0) == 0.0
    assert history.popularity("10", 0.0) == 1.0


def test_popularity_halves_and_gaps_are_known_from_the_start() -> None:
    history = History(60.0)
    for second in range(10):
        history.count_request("a", float(second))
    assert history.usual_gap_s("a", 9.0) == pytest.approx(1.0, rel=0.2)
    assert history.popularity("a", 69.0) == pytest.approx(history.popularity("a", 9.0) / 2)


def test_the_reload_cost_is_that_of_the_disk_once_it_lies_there() -> None:
    history = History(60.0)
    history.note_load("d", LoadedAdapter("d", 1_000, Tier.DISK, 10.0))
    history.note_load("s", LoadedAdapter("s", 2_000, Tier.STORE, 900.0))
    assert history.reload_ms("s") == pytest.approx(20.0)
    history.note_load("s", LoadedAdapter("s", 2_000, Tier.STORE, 900.0))
    assert history.reload_ms("s") == pytest.approx(900.0), "it doesn't stay on disk"


def test_hints_are_bounded_by_owner_ordered_by_time_and_void_after_it() -> None:
    pool, _, loaders = pool_of(host=100_000)
    loaders.by_hand = True
    for i in range(40):
        pool.prefetch(ref(f"h{i}", "a"), 0.0, due=50.0 - i)
    assert pool.snapshot(0.0).pending_hints == 32
    pool.prefetch(ref("x", "b"), 0.0)
    assert pool.snapshot(0.0).pending_hints == 33, "another owner's hints are taken"
    assert len([e for e in pool.take_events() if "owner" in e.error]) == 8
    pool.poll(0.0)
    assert set(loaders.started) == {"h31", "h30", "h29", "h28", "x"}, "soonest first, four for one owner"
    pool.poll(35.0)
    expired = {e.artefact for e in pool.take_events() if "time passed" in e.error}
    assert expired == {f"h{i}" for i in range(16, 28)}


def test_what_came_by_a_hint_waits_for_its_first_use() -> None:
    rules = AdapterRules(kept_adapters=0, kept_share=0.0, hint_keep_s=10.0)
    pool, _, _ = pool_of(host=4_000, rules=rules)
    pool.prefetch(ref("hinted", "a"), 0.0)
    for i in range(20):
        use(pool, ref(f"theirs{i}", "b"), i / 10, times=3)
    assert "hinted" in pool.host
    for i in range(20):
        use(pool, ref(f"more{i}", "b"), 70.0 + i, times=3)
    assert "hinted" not in pool.host


def test_loads_from_disk_never_wait_for_those_from_the_store() -> None:
    pool, _, loaders = pool_of(host=100_000)
    loaders.by_hand = True
    loaders.near = {"near"}
    for i in range(20):
        pool.enter(ref(f"far{i}", "ab"[i % 2]), 0.0)
    pool.poll(0.0)
    assert list(loaders.under_way.values()) == [Lane.STORE] * 8, "four for each owner"
    pool.enter(ref("near", "a"), 0.0)
    pool.poll(0.0)
    assert loaders.under_way["near"] is Lane.DISK


def test_what_is_not_on_disk_after_all_goes_on_in_the_other_lane() -> None:
    pool, _, loaders = pool_of()
    loaders.by_hand = True
    loaders.near = {"a"}
    pool.enter(ref("a"), 0.0)
    pool.poll(0.0)
    loaders.near = set()
    loaders.end("a")
    assert pool.poll(0.0) == [], "no request is answered by that"
    assert loaders.under_way == {"a": Lane.STORE}
    loaders.end("a")
    pool.poll(0.0)
    assert pool.host == ["a"]


class HangingStore:
    """Near adapters load at once; the store answers when it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def is_near(self, adapter: AdapterRef) -> bool:
        return adapter.artefact.startswith("near")

    def load(self, adapter: AdapterRef, *, fetch: bool) -> LoadedAdapter:
        if adapter.artefact.startswith("near"):
            return LoadedAdapter(adapter.artefact, 10, Tier.DISK, 1.0)
        if not fetch:
            raise NotNear
        self.go.wait()
        return LoadedAdapter(adapter.artefact, 10, Tier.STORE, 1.0)

    def forget(self, adapter: AdapterRef) -> None: ...


def test_a_hanging_store_holds_up_no_disk() -> None:
    source, woken = HangingStore(), queue.SimpleQueue[None]()
    loaders = LoaderThreads(source, {Lane.DISK: 1, Lane.STORE: 2}, lambda: woken.put(None))
    pool = AdapterPool(
        CoreConfig(
            num_blocks=8, loader_threads=1, adapters=AdapterRules(store_threads=2, store_loads_per_owner=1)
        ),
        FakeRunner(4),
        loaders,
    )
    names = [*(f"far{i}" for i in range(6)), *(f"near{i}" for i in range(6))]
    for name in names:
        pool.enter(ref(name), 0.0)
    pool.poll(0.0)
    while len(pool.host) < 6:
        woken.get(timeout=20)
        pool.poll(0.0)
    assert sorted(pool.host) == [f"near{i}" for i in range(6)], "while the store hangs"
    assert pool.snapshot(0.0).loading == {"disk": 0, "store": 1}
    source.go.set()
    while len(pool.host) < 12:
        woken.get(timeout=20)
        pool.poll(0.0)
    pool.close()


def test_a_snapshot_counts_what_is_there() -> None:
    pool, _, loaders = pool_of(num_slots=2, device=2_000)
    for name in "ab":
        pool.enter(ref(name), 0.0)
    pool.poll(0.0)
    pool.poll(0.0)
    pool.pin(ref("a"), 0.0)
    loaders.by_hand = True
    pool.prefetch(ref("c"), 0.0)
    pool.poll(0.0)
    state = pool.snapshot(0.0)
    assert (state.host.used_bytes, state.host.residents, state.host.in_use) == (2_000, 2, 1)
    assert (state.device.used_bytes, state.device.budget_bytes, state.device.residents) == (1_000, 2_000, 1)
    assert state.loading == {"disk": 0, "store": 1}
    assert state.loads == {"disk": 0, "store": 2}
    assert state.owners[0].slots == 1


def test_what_is_placed_stays_while_others_churn_until_its_time_is_over() -> None:
    """One idle adapter of `a`, held by a hint, beside a crowd of `b` that has something already."""
    pool, runner, _ = pool_of(num_slots=4, host=4_000, rules=AdapterRules(kept_share=0.0, host_idle_s=5.0))
    pool.prefetch(ref("kept", "a"), 0.0)
    pool.keep(ref("kept", "a"), 100.0, on_device=True)
    pool.poll(0.0)
    pool.poll(0.0)
    assert "kept" in runner.slots.values()  # without a request
    for number in range(12):
        now = 20.0 + number
        pool.enter(ref(f"b{number}", "b"), now)
        pool.poll(now)
        pool.poll(now)
        assert pool.can_pin(ref(f"b{number}", "b"), now)
        pool.pin(ref(f"b{number}", "b"), now)
        pool.unpin(ref(f"b{number}", "b"))
        pool.leave(f"b{number}")
        assert "kept" in pool.host
        assert "kept" in pool.device
    pool.keep(ref("kept", "a"), 30.0, on_device=False)  # asked again: until when is what was said last
    for number in range(12, 18):
        now = 110.0 + number
        pool.enter(ref(f"b{number}", "b"), now)
        pool.poll(now)
        pool.poll(now)
        pool.leave(f"b{number}")
    assert "kept" not in pool.host


def test_what_is_placed_gives_way_beyond_its_owners_share_and_locks_nobody_out() -> None:
    pool, _, _ = pool_of(num_slots=4, host=4_000, rules=AdapterRules(kept_share=0.0, owner_share=0.5))
    for name in ("a0", "a1", "a2", "a3"):
        pool.prefetch(ref(name, "a"), 0.0)
        pool.keep(ref(name, "a"), 1_000.0, on_device=False)
        pool.poll(0.0)
        pool.poll(0.0)
    assert len(pool.host) == 4
    for number in range(2):
        pool.enter(ref(f"b{number}", "b"), 1.0)
        pool.poll(1.0)
        pool.poll(1.0)
    assert {"b0", "b1"} <= set(pool.host)  # all that is above the share of `a`
    pool.keep(ref("unknown", "a"), 1_000.0, on_device=True)  # a hint that was refused: nothing to keep
