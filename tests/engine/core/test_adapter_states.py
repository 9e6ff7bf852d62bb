"""Any order of requests, ends, hints, retirements and loads: bytes, pins and users add up, what runs stays
where it is, and everyone gets a turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.adapter_entry import Lane
from engine.core.adapter_loader import LoadDone
from engine.core.adapter_pool import AdapterPool
from engine.core.adapter_rules import AdapterRules
from engine.core.limits import CoreConfig
from engine.core.plan import LoadedAdapter
from engine.core.protocol import AdapterRef, Tier
from tests.engine.core.fakes import FakeRunner

TICK_S = 0.25
MOST_TICKS = 6  # of a running sequence
NAMES = [f"{owner}{i}" for owner in "xyz" for i in range(5)]
SIZES = {name: 400 + 350 * (index % 6) for index, name in enumerate(NAMES)}
PAGE = 500


def ref_of(name: str) -> AdapterRef:
    return AdapterRef(artefact=name, owner=name[0])


@dataclass(eq=False)
class Asked:
    name: str
    ticks: int
    slot: int | None = None


class HandLoaders:
    """Loads end when told; one from disk may turn out to be elsewhere, and any may fail."""

    def __init__(self) -> None:
        self.near: set[str] = set()
        self.under_way: dict[str, Lane] = {}
        self.forgotten: list[str] = []
        self._done: list[LoadDone] = []

    def is_near(self, adapter: AdapterRef) -> bool:
        return adapter.artefact in self.near

    def start(self, adapter: AdapterRef, lane: Lane) -> None:
        assert adapter.artefact not in self.under_way
        self.under_way[adapter.artefact] = lane

    def end(self, name: str, error: str = "") -> None:
        lane = self.under_way.pop(name)
        if error:
            self._done.append(LoadDone(ref_of(name), None, error))
        elif lane is Lane.DISK and name not in self.near:
            self._done.append(LoadDone(ref_of(name), None, is_elsewhere=True))
        else:
            self.near.add(name)
            self._done.append(LoadDone(ref_of(name), self.loaded(name, lane)))

    def loaded(self, name: str, lane: Lane) -> LoadedAdapter:
        tier = Tier.DISK if lane is Lane.DISK else Tier.STORE
        return LoadedAdapter(name, SIZES[name], tier, 5.0, -(-SIZES[name] // PAGE) * PAGE)

    def finished(self) -> list[LoadDone]:
        done, self._done = self._done, []
        return done

    def forget(self, adapter: AdapterRef) -> None:
        self.near.discard(adapter.artefact)
        self.forgotten.append(adapter.artefact)

    def close(self) -> None:
        self.under_way.clear()


class PoolUse(RuleBasedStateMachine):
    """Fifteen adapters of three owners over few slots and little memory."""

    @initialize(
        num_slots=st.integers(1, 4),
        host=st.sampled_from([2_200, 4_000, 9_000]),
        device=st.sampled_from([None, 2_500, 4_000]),
        slow=st.booleans(),
    )
    def start(self, num_slots: int, host: int, device: int | None, slow: bool) -> None:
        rules = AdapterRules(store_threads=3, store_loads_per_owner=2, host_idle_s=5.0, hint_keep_s=2.0)
        if slow:
            rules = AdapterRules(
                store_threads=3,
                store_loads_per_owner=2,
                loads_per_s=2.0,
                load_burst=3.0,
                load_bytes_per_s=2_000.0,
                load_burst_bytes=4_000.0,
            )
        config = CoreConfig(
            num_blocks=8,
            num_slots=num_slots,
            host_budget_bytes=host,
            device_budget_bytes=device,
            loader_threads=2,
            adapters=rules,
            failure_memory_s=0.0,
        )
        self.now = 0.0
        self.loaders = HandLoaders()
        self.runner = FakeRunner(4)
        self.pool = AdapterPool(config, self.runner, self.loaders)
        self.asked: list[Asked] = []

    @rule(name=st.sampled_from(NAMES), ticks=st.integers(1, MOST_TICKS))
    def ask(self, name: str, ticks: int) -> None:
        self.asked.append(Asked(name, ticks))
        self.pool.enter(ref_of(name), self.now)

    @rule(name=st.sampled_from(NAMES), due_s=st.sampled_from([0.1, 3.0, float("inf")]))
    def hint(self, name: str, due_s: float) -> None:
        self.pool.prefetch(ref_of(name), self.now, self.now + due_s)

    @rule(name=st.sampled_from(NAMES))
    def retire(self, name: str) -> None:
        self.pool.retire(ref_of(name))

    @rule(name=st.sampled_from(NAMES))
    def lose_disk_copy(self, name: str) -> None:
        self.loaders.near.discard(name)

    @precondition(lambda self: self.loaders.under_way)
    @rule(data=st.data(), error=st.sampled_from(["", "", "", "corrupt"]))
    def end_load(self, data: st.DataObject, error: str) -> None:
        self.loaders.end(data.draw(st.sampled_from(sorted(self.loaders.under_way))), error)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.finish(self.asked[data.draw(st.integers(0, len(self.asked) - 1))])

    @rule(count=st.integers(1, 8))
    def pass_time(self, count: int) -> None:
        for _ in range(count):
            self.tick()

    def tick(self) -> None:
        for done in self.pool.poll(self.now):
            if done.loaded is None:
                for asked in [a for a in self.asked if a.name == done.adapter.artefact]:
                    self.finish(asked)
        state, wanted = self.pool.snapshot(self.now), {asked.name for asked in self.asked}
        in_use = sum(SIZES[name] for name in self.pool.host if name in wanted)
        assert state.host.used_bytes <= max(state.host.budget_bytes or 0, in_use), "host budget"
        for asked in self.asked:
            if asked.slot is None and self.pool.can_pin(ref_of(asked.name), self.now):
                asked.slot = self.pool.pin(ref_of(asked.name), self.now)
        self.pool.balance(self.now, self.ticks_left)
        self.now += TICK_S
        for asked in [a for a in self.asked if a.slot is not None]:
            asked.ticks -= 1
            if asked.ticks == 0:
                self.finish(asked)

    def ticks_left(self, name: str) -> int:
        return max((a.ticks for a in self.asked if a.name == name and a.slot is not None), default=0)

    def waiting(self) -> set[str]:
        return {asked.name for asked in self.asked if asked.slot is None}

    def finish(self, asked: Asked) -> None:
        self.asked.remove(asked)
        if asked.slot is not None:
            self.pool.unpin(ref_of(asked.name))
        elif asked.name not in self.waiting():
            self.pool.stop_waiting(ref_of(asked.name))
        self.pool.leave(asked.name)

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "pool"):
            return
        running = [asked for asked in self.asked if asked.slot is not None]
        self.pool.check(Counter(a.name for a in running), Counter(a.name for a in self.asked))
        for asked in running:
            assert self.runner.slots[asked.slot or 0] == asked.name, "what runs stays where it is"
        state = self.pool.snapshot(self.now)
        assert len(state.owners) <= 3
        assert state.waiting_for_slot <= len(self.waiting()), "no slot is kept for what nobody waits for"

    def teardown(self) -> None:
        """Everyone who waits gets a turn: each turn takes a load, a drain and the sequences before it."""
        if not hasattr(self, "pool"):
            return
        most_ticks = 60 + len(self.asked) * (MOST_TICKS + 16)
        for _ in range(most_ticks):
            for name in list(self.loaders.under_way):
                self.loaders.end(name)
            self.tick()
            if not self.asked and not self.pool.is_loading:
                break
        assert not self.asked, "everyone was served"
        self.everything_adds_up()


TestPoolUse = PoolUse.TestCase
TestPoolUse.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
