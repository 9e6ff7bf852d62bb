"""Where each adapter is, and who runs on it. The pool is the only owner of host memory and slots.

| state | host memory | slot | moves on when |
|---|---|---|---|
| absent | - | - | a request or a hint wants it: loading |
| loading | being filled | - | the load ends: host, or failed (absent, and remembered for a short time) |
| host | yes | - | a sequence is admitted: slot; or it is the least recently used idle one: absent |
| slot | yes | yes | another adapter needs the slot and nothing runs on this one: host |

Sequences that run pin their slot; a pinned slot is never touched. An adapter that has waited for a slot (or
for host memory) longer than `drain_after_s` gets one reserved: nothing more is admitted on that slot, so that
it falls idle. Since every adapter that waits gets a slot in turn, more adapters than slots is slow at worst,
never stuck.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.core.adapter_loader import LoadDone, Loaders
from engine.core.adapter_slots import Draining, Entry, SlotTable
from engine.core.limits import MAX_FAILURES, MAX_PREFETCHES, CoreConfig
from engine.core.plan import Runner
from engine.core.protocol import AdapterEvent, AdapterRef, Tier


@dataclass(slots=True)
class AdapterCounters:
    loads: Counter[str] = field(default_factory=lambda: Counter({Tier.DISK.value: 0, Tier.STORE.value: 0}))
    hits: int = 0
    host_evictions: int = 0


class AdapterPool:
    """Belongs to the step thread; only `Loaders` has threads."""

    def __init__(self, config: CoreConfig, runner: Runner, loaders: Loaders) -> None:
        self._config = config
        self._loaders = loaders
        self._entries: dict[str, Entry] = {}
        self._slots = SlotTable(config.num_slots, runner)
        self._pending: OrderedDict[str, None] = OrderedDict()  # wanted, not yet given to a loader
        self._failures: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._slot_wanted: dict[str, float] = {}  # in host memory, waits for a slot since
        self._load_wanted: dict[str, float] = {}  # waits for room in host memory since
        self._host_bytes = 0
        self._uses = 0
        self.counters = AdapterCounters()
        self._events: list[AdapterEvent] = []

    # Requests come and go

    def enter(self, ref: AdapterRef, now: float) -> Tier | None:
        """A request for the adapter was accepted: where it is, or None if it has to be loaded (it will
        be)."""
        entry = self._entries.setdefault(ref.artefact, Entry(ref))
        entry.users += 1
        self._touch(entry)
        if entry.loaded is None:
            self._want_load(entry)
            return None
        self.counters.hits += 1
        return Tier.HOST if entry.slot is None else Tier.DEVICE

    def leave(self, artefact: str) -> None:
        """The request has ended."""
        entry = self._entries[artefact]
        assert entry.users > 0
        entry.users -= 1
        if entry.users == 0:
            self._load_wanted.pop(artefact, None)
            self._stop_waiting_for_slot(artefact)
            if entry.loaded is None and not entry.loading and not entry.hinted:
                self._pending.pop(artefact, None)
                self._drop_if_gone(entry)
        self._retire_if_idle(entry)

    def failure(self, artefact: str, now: float) -> str | None:
        """Why its load failed a moment ago, or None."""
        until, reason = self._failures.get(artefact, (0.0, ""))
        return reason if now < until else None

    # Sequences run

    def can_pin(self, ref: AdapterRef, now: float) -> bool:
        """Whether a sequence could run on it in this step. If not for want of a slot, its wait is noted."""
        entry = self._entries[ref.artefact]
        if entry.loaded is None:
            return False
        if entry.leaving:
            return False
        if self._slots.slot_for(entry) is not None:
            return True
        self._slot_wanted.setdefault(ref.artefact, now)
        return False

    def pin(self, ref: AdapterRef, now: float) -> int:
        """Puts it in a slot, if it isn't in one, and keeps it there until `unpin`. Needs `can_pin`."""
        entry = self._entries[ref.artefact]
        slot = self._slots.slot_for(entry)
        assert slot is not None, "the caller asks can_pin first"
        if entry.slot is None:
            self._slots.install(entry, slot, now)
            self._tell(entry, Tier.DEVICE)
        self._stop_waiting_for_slot(ref.artefact)
        entry.pins += 1
        entry.served = True
        self._touch(entry)
        return slot

    def unpin(self, ref: AdapterRef) -> None:
        entry = self._entries[ref.artefact]
        assert entry.pins > 0
        entry.pins -= 1
        self._retire_if_idle(entry)  # its last request may have left before the step that it was in had run

    def num_bytes(self, artefact: str) -> int:
        """What it takes in host memory; 0 while it isn't there."""
        loaded = self._entries[artefact].loaded
        return 0 if loaded is None else loaded.num_bytes

    # Hints

    def prefetch(self, ref: AdapterRef, now: float) -> None:
        """Loads it if it is absent. Each hint is answered by an `AdapterEvent`, now or when the load has
        ended."""
        if reason := self.failure(ref.artefact, now):
            self._events.append(AdapterEvent(artefact=ref.artefact, tier=None, error=reason))
            return
        entry = self._entries.get(ref.artefact)
        if entry is None and len(self._pending) >= MAX_PREFETCHES:
            error = f"{MAX_PREFETCHES} adapters wait to be loaded already."
            self._events.append(AdapterEvent(artefact=ref.artefact, tier=None, error=error))
            return
        entry = self._entries.setdefault(ref.artefact, Entry(ref))
        if entry.loaded is not None:
            self._tell(entry, Tier.HOST if entry.slot is None else Tier.DEVICE)
        else:
            entry.hinted = True
            self._want_load(entry)

    def retire(self, ref: AdapterRef) -> None:
        """Forgets it, here and on disk, as soon as no request wants it."""
        entry = self._entries.setdefault(ref.artefact, Entry(ref))
        entry.retiring = True
        if entry.users == 0:
            entry.hinted = False
            self._pending.pop(ref.artefact, None)
        self._retire_if_idle(entry)

    # Each step

    def poll(self, now: float) -> list[LoadDone]:
        """Takes in the loads that have ended, and starts others. The caller answers the requests of failed
        ones."""
        done = [self._finish_load(one, now) for one in self._loaders.finished()]
        self._start_loads(now)
        return done

    def balance(self, now: float, remaining: Callable[[str], int]) -> None:
        """Drains slots for adapters that have waited too long. `remaining` tells how many tokens the running
        sequences of an adapter may still take, at most."""
        rule = Draining(self._config.drain_after_s, remaining)
        for artefact in self._late(self._slot_wanted, now):
            self._slots.reserve(artefact, now, rule)
        self._make_leave(len(self._late(self._load_wanted, now)), now, rule)

    def take_events(self) -> list[AdapterEvent]:
        events, self._events = self._events, []
        return events

    @property
    def slot_epoch(self) -> int:
        return self._slots.epoch

    @property
    def evictions(self) -> dict[str, int]:
        """By the tier that was left."""
        return {Tier.DEVICE.value: self._slots.num_evictions, Tier.HOST.value: self.counters.host_evictions}

    @property
    def device(self) -> list[str]:
        """Artefacts in slots."""
        return [entry.ref.artefact for entry in self._slots.occupants]

    @property
    def host(self) -> list[str]:
        """Artefacts in host memory, those in slots included."""
        return [artefact for artefact, entry in self._entries.items() if entry.loaded is not None]

    @property
    def is_loading(self) -> bool:
        return bool(self._pending) or any(entry.loading for entry in self._entries.values())

    def check(self, pins: Counter[str], users: Counter[str]) -> None:
        """Asserts that slots, pins and bytes add up; `pins` and `users` are what the caller knows of."""
        for artefact, entry in self._entries.items():
            assert entry.pins == pins[artefact], "pins are running sequences"
            assert entry.users == users[artefact], "users are open requests"
            assert entry.pins == 0 or entry.slot is not None, "what runs is in a slot"
            assert entry.slot is None or self._slots.occupant(entry.slot) is entry, "slots and entries agree"
            assert entry.slot is None or entry.loaded is not None, "what is in a slot is in host memory"
        assert not set(pins) - set(self._entries), "what runs is known"
        assert not set(users) - set(self._entries), "what is wanted is known"
        assert self._host_bytes == sum(e.loaded.num_bytes for e in self._entries.values() if e.loaded), (
            "bytes"
        )

    def close(self) -> None:
        self._loaders.close()

    # Loading

    def _want_load(self, entry: Entry) -> None:
        if not entry.loading:
            self._pending.setdefault(entry.ref.artefact)

    def _start_loads(self, now: float) -> None:
        under_way = [entry.ref.owner for entry in self._entries.values() if entry.loading]
        owners = Counter(under_way)
        num_loading = len(under_way)
        while self._pending and num_loading < self._config.loader_threads:
            entry = self._next_load(owners)
            artefact = entry.ref.artefact
            if not self._make_room(now):
                if entry.users:
                    self._load_wanted.setdefault(artefact, now)
                return
            del self._pending[artefact]
            self._load_wanted.pop(artefact, None)
            entry.loading = True
            self._loaders.start(entry.ref)
            owners[entry.ref.owner] += 1
            num_loading += 1

    def _next_load(self, owners: Counter[str]) -> Entry:
        """Requests before hints, owners with fewer loads under way first (one owner's slow store must not
        keep the others out), then in order of arrival."""
        entries = [self._entries[artefact] for artefact in self._pending]
        return min(entries, key=lambda entry: (entry.users == 0, owners[entry.ref.owner]))

    def _finish_load(self, done: LoadDone, now: float) -> LoadDone:
        entry = self._entries[done.adapter.artefact]
        entry.loading = entry.hinted = False
        if done.loaded is not None and done.loaded.num_bytes > self._config.host_budget_bytes:
            done = LoadDone(done.adapter, None, "The adapter is larger than the host memory for adapters.")
        if done.loaded is None:
            self._remember_failure(entry, done.error, now)
            return done
        entry.loaded = done.loaded
        entry.served = False
        self._host_bytes += done.loaded.num_bytes
        self._touch(entry)
        self.counters.loads[done.loaded.found_in.value] += 1
        self._tell(entry, Tier.HOST)
        self._shrink_host(keep=entry)
        self._retire_if_idle(entry)
        return done

    def _remember_failure(self, entry: Entry, error: str, now: float) -> None:
        artefact = entry.ref.artefact
        self._failures.pop(artefact, None)
        self._failures[artefact] = (now + self._config.failure_memory_s, error)
        while len(self._failures) > MAX_FAILURES:
            self._failures.popitem(last=False)
        self._events.append(AdapterEvent(artefact=artefact, tier=None, error=error))
        self._drop_if_gone(entry)
        self._retire_if_idle(entry)

    # Host memory

    def _make_room(self, now: float) -> bool:
        """Whether one more load may start: host memory isn't full, or what is idle in it could go."""
        also_wanted = bool(self._late(self._load_wanted, now))
        while self._host_bytes >= self._config.host_budget_bytes:
            victim = self._idle_in_host(keep=None, also_wanted=also_wanted)
            if victim is None:
                return False
            self._evict_from_host(victim)
        return True

    def _shrink_host(self, keep: Entry) -> None:
        while self._host_bytes > self._config.host_budget_bytes:
            victim = self._idle_in_host(keep, also_wanted=False)
            if victim is None:
                return  # all of it is in use; no load starts until that changes
            self._evict_from_host(victim)

    def _idle_in_host(self, keep: Entry | None, *, also_wanted: bool) -> Entry | None:
        """The least recently used adapter on which nothing runs and that nobody wants; for one that has
        waited too long, also one that is wanted, once it has had its turn since it was loaded."""
        idle = [
            entry
            for entry in self._entries.values()
            if entry.loaded is not None
            and entry is not keep
            and entry.pins == 0
            and (entry.users == 0 or (also_wanted and entry.served))
        ]
        return min(idle, key=lambda entry: (entry.users > 0, not entry.leaving, entry.used), default=None)

    def _evict_from_host(self, entry: Entry) -> None:
        self._slots.empty(entry)
        assert entry.loaded is not None
        self._host_bytes -= entry.loaded.num_bytes
        entry.loaded = None
        entry.leaving = False
        self._stop_waiting_for_slot(entry.ref.artefact)
        self.counters.host_evictions += 1
        self._tell(entry, None)
        if entry.users:
            self._want_load(entry)
        self._drop_if_gone(entry)

    # Draining

    def _late(self, wanted: dict[str, float], now: float) -> list[str]:
        """Who has waited for too long, longest first."""
        late = [(since, name) for name, since in wanted.items() if now - since > self._config.drain_after_s]
        return [name for _, name in sorted(late)]

    def _make_leave(self, count: int, now: float, rule: Draining) -> None:
        """Has `count` adapters in slots leave host memory, as soon as nothing runs on them."""
        leaving = [entry for entry in self._entries.values() if entry.leaving]
        for entry in leaving[count:]:
            entry.leaving = False
        staying = [entry for entry in self._slots.occupants if not entry.leaving]
        for entry in rule.first_idle(staying, now)[: max(0, count - len(leaving))]:
            entry.leaving = True

    def _stop_waiting_for_slot(self, artefact: str) -> None:
        self._slot_wanted.pop(artefact, None)
        self._slots.unreserve(artefact)

    # Leaving

    def _retire_if_idle(self, entry: Entry) -> None:
        if not entry.retiring or entry.users or entry.pins or entry.loading:
            return
        entry.retiring = False
        if entry.loaded is not None:
            self._evict_from_host(entry)
        else:
            self._tell(entry, None)
        self._drop_if_gone(entry)
        self._loaders.forget(entry.ref)

    def _drop_if_gone(self, entry: Entry) -> None:
        """Forgets an absent adapter that nobody wants."""
        artefact = entry.ref.artefact
        idle = not (entry.users or entry.loading or entry.retiring or artefact in self._pending)
        if idle and entry.loaded is None:
            self._entries.pop(artefact, None)

    def _tell(self, entry: Entry, tier: Tier | None) -> None:
        loaded = entry.loaded
        self._events.append(
            AdapterEvent(
                artefact=entry.ref.artefact,
                tier=tier,
                num_bytes=0 if loaded is None else loaded.num_bytes,
                load_ms=0.0 if loaded is None else loaded.load_ms,
            )
        )

    def _touch(self, entry: Entry) -> None:
        self._uses += 1
        entry.used = self._uses
