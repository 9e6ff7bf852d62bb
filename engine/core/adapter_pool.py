"""Where each adapter is, and who runs on it. The pool is the only owner of host memory and slots.

| state | host memory | slot | moves on when |
|---|---|---|---|
| absent | - | - | a request or a hint wants it: loading |
| loading | being filled | - | the load ends: host, or failed (absent, and remembered for a short time) |
| host | yes | - | a sequence is admitted: slot; or it makes room for another: absent |
| slot | yes | yes | another adapter gets the slot, once nothing runs on this one: host |

Sequences that run pin their slot; a pinned slot is never touched. An adapter that has waited for a slot (or
for host memory) longer than `drain_after_s` gets one reserved: nothing more is admitted on that slot, so that
it falls idle. The popular keep their slots meanwhile; the others take turns on the rest. Since every adapter
that waits gets a slot in turn, more adapters than slots is slow at worst, never stuck.

Facts have these owners: `HostTier` who is in memory, `SlotTable` who is in a slot, `LoadQueue` what is loaded
next, `History` what was popular. The pool moves adapters between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from engine.core.adapter_entry import Entry, Reason
from engine.core.adapter_history import History
from engine.core.adapter_host import HostTier
from engine.core.adapter_loader import LoadDone, Loaders
from engine.core.adapter_loads import Failures, LoadQueue
from engine.core.adapter_report import AdapterCounters, residency_of, snapshot_of
from engine.core.adapter_slots import Draining, Place, SlotTable
from engine.core.adapter_state import AdapterSnapshot
from engine.core.limits import CoreConfig
from engine.core.plan import Runner
from engine.core.protocol import AdapterEvent, AdapterRef, Residency, Tier

MOST_DRAINS = 16
"""Adapters for which others are told to leave host memory at a time."""


class AdapterPool:
    """Belongs to the step thread; only `Loaders` has threads."""

    def __init__(self, config: CoreConfig, runner: Runner, loaders: Loaders) -> None:
        rules = config.adapters
        self._config = config
        self._loaders = loaders
        self._history = History(rules.half_life_s)
        self._entries: dict[str, Entry] = {}
        self._host = HostTier(config.host_budget_bytes, rules, self._history)
        self._slots = SlotTable(config.num_slots, config.device_budget_bytes, runner, rules, self._history)
        self._loads = LoadQueue(config, loaders, self._history)
        self._failures = Failures(config.failure_memory_s)
        self._no_place: set[str] = set()  # asked in vain, and nothing has become free since
        self._now = 0.0  # as the caller last told
        self._num_uses = 0
        self._events: list[AdapterEvent] = []
        self.counters = AdapterCounters()

    # Requests come and go

    def enter(self, ref: AdapterRef, now: float, *, yields: bool = False) -> Tier | None:
        """A request for the adapter was accepted: where it is, or None if it has to be loaded (it will be).
        One whose slot goes to another next counts as in host memory: it will be installed again. One that
        yields makes its adapter no more popular."""
        self._move_to(now)
        entry = self._entries.setdefault(ref.artefact, Entry(ref))
        entry.users += 1
        entry.proofs += yields
        if not yields:
            self._history.count_request(ref.artefact, now)
        self._touch(entry)
        if entry.loaded is None:
            self._loads.want(entry)
            return None
        self.counters.hits += 1
        return Tier.DEVICE if self._slots.is_open(entry) else Tier.HOST

    def leave(self, artefact: str, *, yields: bool = False) -> None:
        """The request has ended."""
        entry = self._entries[artefact]
        entry.users -= 1
        entry.proofs -= yields
        assert 0 <= entry.proofs <= entry.users
        self._no_place.clear()
        self._touch(entry)
        if entry.users == 0:
            self._loads.stop_waiting_for_room(entry)
            self._stop_waiting_for_slot(entry)
            if entry.loaded is None and not entry.loading and not entry.hinted:
                self._loads.drop(entry)
                self._drop_if_gone(entry)
        self._retire_if_idle(entry)

    def failure(self, artefact: str, now: float) -> str | None:
        """Why its load failed a moment ago, or None."""
        return self._failures.reason(artefact, now)

    # Sequences run

    def can_pin(self, ref: AdapterRef, now: float) -> bool:
        """Whether a sequence could run on it in this step. If not for want of a slot, its wait is noted."""
        entry = self._entries[ref.artefact]
        if entry.loaded is None or entry.leaving:
            return False
        return self._place(entry, now) is not None

    def pin(self, ref: AdapterRef, now: float) -> int:
        """Puts it in a slot, if it isn't in one, and keeps it there until `unpin`. Needs `can_pin`."""
        entry = self._entries[ref.artefact]
        place = self._place(entry, now)
        assert place is not None, "the caller asks can_pin first"
        if entry.slot is None:
            self._slots.install(entry, place, now)
            self._tell(entry, Tier.DEVICE)
        self._stop_waiting_for_slot(entry)
        entry.pins += 1
        entry.served = True
        entry.kept_until = float("-inf")
        self._touch(entry)
        return place.number

    def stop_waiting(self, ref: AdapterRef) -> None:
        """Of its requests, none waits to run any more."""
        self._stop_waiting_for_slot(self._entries[ref.artefact])

    def num_bytes(self, artefact: str) -> int:
        """In host memory; 0 while it is absent."""
        return 0 if (entry := self._entries.get(artefact)) is None else entry.num_bytes

    def unpin(self, ref: AdapterRef) -> None:
        entry = self._entries[ref.artefact]
        assert entry.pins > 0
        entry.pins -= 1
        self._no_place.clear()
        self._touch(entry)
        self._retire_if_idle(entry)  # its last request may have left before the step that it was in had run

    # Hints

    def prefetch(self, ref: AdapterRef, now: float, due: float = float("inf")) -> None:
        """Loads it if it is absent; `due` is when its first use is expected, after which the hint is void.
        Each hint is answered by an `AdapterEvent`, now or when the load has ended."""
        self._move_to(now)
        reason = self.failure(ref.artefact, now)
        if reason is None and ref.artefact not in self._entries:
            reason = self._loads.hint_refusal(ref)
        if reason is not None:
            self._events.append(AdapterEvent(artefact=ref.artefact, tier=None, error=reason))
            return
        entry = self._entries.setdefault(ref.artefact, Entry(ref))
        if entry.loaded is not None:
            self._tell(entry, Tier.HOST if entry.slot is None else Tier.DEVICE)
        else:
            entry.hint_by = max(due, entry.hint_by) if entry.hinted else due
            entry.hinted = True
            self._loads.want(entry)

    def keep(self, ref: AdapterRef, until: float, *, on_device: bool) -> None:
        """A hint came with the wish that the adapter stays; void where the hint was refused."""
        if (entry := self._entries.get(ref.artefact)) is None:
            return
        entry.placed_until, entry.placed_on_device = until, on_device
        self._note_change()
        self._put_in_free_slot(entry)

    def retire(self, ref: AdapterRef) -> None:
        """Forgets it, here and on disk, as soon as no request wants it."""
        entry = self._entries.setdefault(ref.artefact, Entry(ref))
        entry.retiring = True
        if entry.users == 0:
            entry.hinted = False
            self._loads.drop(entry)
        self._retire_if_idle(entry)

    # Each step

    def poll(self, now: float) -> list[LoadDone]:
        """Takes in the loads that have ended, and starts others. The caller answers the requests of failed
        ones."""
        self._move_to(now)
        done = [self._finish_load(one) for one in self._loaders.finished() if not self._passes_on(one)]
        for entry in self._loads.take_expired(now):
            entry.hinted = False
            error = "Its time passed before the adapter could be loaded."
            self._events.append(AdapterEvent(artefact=entry.artefact, tier=None, error=error))
            self._drop_if_gone(entry)
        self._shrink_host()
        self._loads.start(self._make_room, self._exceeds_share, now)
        return done

    def balance(self, now: float, remaining: Callable[[str], int]) -> None:
        """Drains slots for adapters that have waited too long. `remaining` tells how many tokens the running
        sequences of an adapter may still take, at most."""
        self._move_to(now)
        rule = Draining(self._config.drain_after_s, remaining)
        self._slots.balance(now, rule)
        needs = [
            (entry, self._loads.likely_bytes(entry)) for entry in self._loads.late_for_room(now)[:MOST_DRAINS]
        ]
        in_slots = [entry for entry in self._slots.occupants if rule.had_its_time(entry, now)]
        self._host.drain(needs, sorted(in_slots, key=rule.order), now)
        for entry in self._host.entries:
            if entry.leaving:
                self._stop_waiting_for_slot(entry)  # nothing is admitted on it: no slot may be kept for it

    def take_events(self) -> list[AdapterEvent]:
        events, self._events = self._events, []
        return events

    # What others may know

    @property
    def slot_epoch(self) -> int:
        return self._slots.epoch

    @property
    def evictions(self) -> dict[str, int]:
        """By the tier that was left."""
        return {
            Tier.DEVICE.value: self._slots.evictions.total(),
            Tier.HOST.value: self._host.evictions.total(),
        }

    @property
    def device(self) -> list[str]:
        """Artefacts in slots."""
        return [entry.artefact for entry in self._slots.occupants]

    @property
    def host(self) -> list[str]:
        """Artefacts in host memory, those in slots included."""
        return [entry.artefact for entry in self._host.entries]

    def residency(self, artefact: str) -> Residency:
        return residency_of(artefact, self._entries.get(artefact))

    @property
    def is_loading(self) -> bool:
        return self._loads.is_busy

    def next_load_s(self, now: float) -> float | None:
        """When to poll again for a load that only waits for its owner's rate, in seconds; None = never."""
        return self._loads.next_start_s(now)

    def snapshot(self, now: float) -> AdapterSnapshot:
        return snapshot_of(self._slots, self._host, self._loads, self.counters, now)

    def check(self, pins: Counter[str], users: Counter[str]) -> None:
        """Asserts that slots, pins and bytes add up; `pins` and `users` are what the caller knows of."""
        for artefact, entry in self._entries.items():
            entry.check(pins[artefact], users[artefact])
            assert entry.slot is None or self._slots.occupant(entry.slot) is entry, "slots and entries agree"
            assert not (entry.leaving and entry in self._slots.waiting), "no slot is kept for what leaves"
        assert not {*pins, *users} - set(self._entries), "what runs and what is wanted is known"
        known = {entry for entry in self._entries.values() if entry.loaded is not None}
        assert known == set(self._host.entries), "host memory and entries agree"
        self._slots.check()
        self._host.check()
        self._loads.check()

    def close(self) -> None:
        self._loaders.close()

    # Slots

    def _place(self, entry: Entry, now: float) -> Place | None:
        if now != self._now:
            self._move_to(now)
        if entry.artefact in self._no_place:
            return None
        place = self._slots.find(entry, now)
        if place is None:
            self._no_place.add(entry.artefact)
        return place

    def _put_in_free_slot(self, entry: Entry) -> None:
        if self._slots.fill_free(entry, self._now):
            self._tell(entry, Tier.DEVICE)

    def _stop_waiting_for_slot(self, entry: Entry) -> None:
        if self._slots.stop_waiting(entry):
            self._no_place.clear()

    # Loading

    def _passes_on(self, done: LoadDone) -> bool:
        """Whether the load goes on, or isn't wanted any more: it was not on disk after all."""
        if not done.is_elsewhere:
            return False
        entry = self._entries[done.adapter.artefact]
        self._loads.want_from_store(entry)
        if not (entry.users or entry.hinted):
            self._loads.drop(entry)
            self._retire_if_idle(entry)
            self._drop_if_gone(entry)
        return True

    def _finish_load(self, done: LoadDone) -> LoadDone:
        entry, loaded = self._entries[done.adapter.artefact], done.loaded
        was_hinted, entry.hinted = entry.hinted, False
        entry.hint_by = float("inf")
        self._loads.finish(entry, 0 if loaded is None else loaded.num_bytes, self._now)
        if loaded is None:
            return self._fail_load(entry, done)
        if error := self._config.too_large(loaded.num_bytes, loaded.device_bytes):
            return self._fail_load(entry, LoadDone(done.adapter, None, error, is_fault=True))
        entry.loaded = loaded
        entry.served = False
        if was_hinted and not entry.users:
            entry.kept_until = self._now + self._config.adapters.hint_keep_s
        self._host.add(entry)
        self._history.note_load(entry.artefact, loaded)
        self._touch(entry)
        self.counters.loads[loaded.found_in.value] += 1
        self._tell(entry, Tier.HOST, loaded.found_in)
        self._shrink_host(keep=entry)
        self._put_in_free_slot(entry)
        self._retire_if_idle(entry)
        return done

    def _fail_load(self, entry: Entry, done: LoadDone) -> LoadDone:
        self.counters.failed += 1
        self._failures.note(entry.artefact, done.error, self._now)
        self._events.append(AdapterEvent(entry.artefact, None, error=done.error, is_fault=done.is_fault))
        self._drop_if_gone(entry)
        self._retire_if_idle(entry)
        return done

    # Host memory

    def _make_room(self, newcomer: Entry, need: int) -> bool:
        """Whether so many bytes of host memory are free, perhaps since others have left it. Only one that has
        waited too long drives out what others wait for."""
        also_wanted = self._loads.is_late(newcomer, self._now)
        victims = self._host.victims(newcomer, need, now=self._now, also_wanted=also_wanted)
        for victim in victims or ():
            self._evict_from_host(victim, Reason.DRAINED if victim.leaving else Reason.ROOM)
        return victims is not None

    def _shrink_host(self, keep: Entry | None = None) -> None:
        for victim in self._host.surplus(keep, self._now):
            self._evict_from_host(victim, Reason.ROOM)

    def _exceeds_share(self, newcomer: Entry, need: int) -> bool:
        return self._host.claims(self._now).exceeds_share(newcomer.owner, need)

    def _evict_from_host(self, entry: Entry, reason: Reason) -> None:
        self._slots.empty(entry, Reason.RETIRED if reason is Reason.RETIRED else Reason.HOST)
        self._host.remove(entry, reason, self._now)
        self._stop_waiting_for_slot(entry)
        self._tell(entry, None)
        if entry.users:
            self._loads.want(entry)
        self._drop_if_gone(entry)

    # Leaving

    def _retire_if_idle(self, entry: Entry) -> None:
        if not entry.retiring or entry.users or entry.pins or entry.loading:
            return
        entry.retiring = False
        if entry.loaded is not None:
            self._evict_from_host(entry, Reason.RETIRED)
        else:
            self._tell(entry, None)
        self._drop_if_gone(entry)
        self._loaders.forget(entry.ref)

    def _drop_if_gone(self, entry: Entry) -> None:
        """Forgets an absent adapter that nobody wants."""
        idle = not (entry.users or entry.loading or entry.retiring or self._loads.is_pending(entry))
        if idle and entry.loaded is None:
            self._entries.pop(entry.artefact, None)

    # Time and news

    def _move_to(self, now: float) -> None:
        self._now = now
        self._no_place.clear()

    def _tell(self, entry: Entry, tier: Tier | None, found_in: Tier | None = None) -> None:
        load_ms = 0.0 if entry.loaded is None else entry.loaded.load_ms
        event = AdapterEvent(entry.artefact, tier, entry.num_bytes, load_ms, found_in=found_in)
        self._events.append(event)

    def _note_change(self) -> None:
        self._slots.note_change()
        self._host.note_change()

    def _touch(self, entry: Entry) -> None:
        self._num_uses += 1
        self._note_change()
        entry.used = self._num_uses
        entry.used_at = self._now
        entry.host_credit = self._host.clock
        entry.slot_credit = self._slots.clock
