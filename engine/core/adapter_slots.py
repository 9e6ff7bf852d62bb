"""The device tier: a fixed number of slots over a budget of bytes. The table is the only one that touches the
runner's slots."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from engine.core.adapter_claims import Aging, Claims, Shares
from engine.core.adapter_entry import Entry, Reason, Wait
from engine.core.adapter_heat import Heat
from engine.core.adapter_history import History
from engine.core.adapter_rules import AdapterRules
from engine.core.plan import Runner

INSTALL_FIXED_MS = 0.2
INSTALL_MS_PER_BYTE = 1 / 20e6
"""A copy from host memory to the device: about 20 GB/s, and what each copy costs whatever its size."""


@dataclass(frozen=True, slots=True)
class Place:
    """A slot that an adapter can have now, and who leaves for it."""

    number: int
    victims: tuple[Entry, ...] = ()


@dataclass(slots=True)
class _Slot:
    occupant: Entry | None = None
    reserved_for: str | None = None  # the artefact that gets it next


_Order = tuple[bool, bool, bool, bool, float, int]


@dataclass(frozen=True, slots=True)
class _Picture:
    key: tuple[float, int, int]
    heat: Heat
    claims: Claims
    orders: dict[Entry, _Order] = field(default_factory=dict)


class SlotTable:
    """Slots, each with at most one adapter, and at most one that it is kept for."""

    def __init__(
        self, num_slots: int, budget_bytes: int | None, runner: Runner, rules: AdapterRules, history: History
    ) -> None:
        self.num_slots = num_slots
        self.budget_bytes = budget_bytes
        self._runner = runner
        self._rules = rules
        self._history = history
        self._slots = [_Slot() for _ in range(num_slots)]
        self.waiting: dict[Entry, Wait] = {}  # in host memory, want a slot
        self._picture: _Picture | None = None
        self._changes = 0
        self._waiting_bytes: dict[str, int] = {}  # of adapters for which slots are reserved
        self._aging = Aging()
        total = num_slots if budget_bytes is None else budget_bytes
        self._shares = Shares(
            most=max(1, total * rules.owner_share),
            kept_adapters=1,
            kept_most=total * rules.kept_share,
            idle_s=rules.slot_idle_s,
            kept_until=attrgetter("slot_kept_until"),
        )
        self.used_bytes = 0
        self.epoch = 0  # moves whenever any slot's content does
        self.evictions: Counter[Reason] = Counter()

    @property
    def occupants(self) -> list[Entry]:
        return [slot.occupant for slot in self._slots if slot.occupant is not None]

    @property
    def clock(self) -> float:
        return self._aging.clock

    def occupant(self, number: int) -> Entry | None:
        return self._slots[number].occupant

    def is_open(self, entry: Entry) -> bool:
        """Whether it has a slot that isn't kept for another."""
        return entry.slot is not None and self._slots[entry.slot].reserved_for in (None, entry.artefact)

    def note_change(self) -> None:
        """Somebody asked for an adapter, or runs on one, or doesn't any more."""
        self._changes += 1

    def find(self, entry: Entry, now: float) -> Place | None:
        """Where a sequence of the adapter could run now: its own slot, one kept for it, an empty one, or that
        of the adapter worth least on which nothing runs; with room in bytes, for which more may have to
        leave. If there is none, its wait begins (`stop_waiting` ends it)."""
        if entry.slot is not None:
            place = Place(entry.slot) if self.is_open(entry) else None
        else:
            place = self._first_place(entry, now)
        if place is None:
            self.waiting.setdefault(entry, Wait(now, now)).tried = now
        return place

    def fill_free(self, entry: Entry, now: float) -> bool:
        """Puts one that is to be kept on the device into an empty slot that is kept for nobody, if there is
        one with room for its bytes: nobody makes way. With none it gets its slot by its first request."""
        wanted = entry.placed_on_device and entry.placed_until >= now and not entry.leaving
        if not wanted or entry.loaded is None or entry.slot is not None:
            return False
        empty = (n for n, s in enumerate(self._slots) if s.occupant is None and s.reserved_for is None)
        number = next(empty, None)
        if number is None or entry.device_bytes > self._free_bytes(entry):
            return False
        self.install(entry, Place(number), now)
        return True

    def install(self, entry: Entry, place: Place, now: float) -> None:
        """Puts a loaded adapter into a place that `find` gave."""
        assert entry.loaded is not None
        for victim in place.victims:
            assert victim.slot is not None
            is_drained = self._slots[victim.slot].reserved_for == entry.artefact
            self._aging.advance(self._worth(victim, now))
            self.empty(victim, Reason.DRAINED if is_drained else Reason.ROOM)
        self._runner.install(place.number, entry.loaded.handle)
        self._slots[place.number].occupant = entry
        self.used_bytes += entry.device_bytes
        entry.slot = place.number
        entry.installed = now
        self.epoch += 1

    def empty(self, entry: Entry, reason: Reason) -> None:
        """Takes an adapter out of its slot, if it is in one."""
        if entry.slot is None:
            return
        assert entry.pins == 0, "a slot in use is never touched"
        self._runner.clear(entry.slot)
        self._slots[entry.slot].occupant = None
        self.used_bytes -= entry.device_bytes
        entry.slot = None
        self.epoch += 1
        self.evictions[reason] += 1

    def stop_waiting(self, entry: Entry) -> bool:
        """It runs, or isn't wanted any more. Whether anything was kept for it."""
        self.waiting.pop(entry, None)
        if self._waiting_bytes.pop(entry.artefact, None) is None:
            return False
        for slot in self._slots:
            if slot.reserved_for == entry.artefact:
                slot.reserved_for = None
        return True

    def balance(self, now: float, rule: Draining) -> None:
        """Keeps slots for adapters that have waited too long, longest first, and for popular ones that have
        no shielded slot yet."""
        for entry, wait in sorted(self.waiting.items(), key=lambda item: (item[1].since, item[0].used)):
            if all(slot.reserved_for is not None for slot in self._slots):
                break
            lacks_other = self.is_open(entry) or now - wait.tried > rule.tenure_s
            if lacks_other or entry.artefact in self._waiting_bytes:
                continue
            is_late = now - wait.since > (self._rules.slot_deadline_s if entry.yields else rule.tenure_s)
            if is_late or (entry.slot is None and self._look(now).heat.is_entitled(entry)):
                self._reserve(entry, now, rule)

    def check(self) -> None:
        """Asserts that bytes and reservations add up."""
        assert self.used_bytes == sum(entry.device_bytes for entry in self.occupants), "bytes in slots"
        assert self.budget_bytes is None or self.used_bytes <= self.budget_bytes, "the device's budget"
        reserved = {slot.reserved_for for slot in self._slots} - {None}
        assert reserved == set(self._waiting_bytes), "reservations have slots"

    # Who makes way

    def _first_place(self, entry: Entry, now: float) -> Place | None:
        usable = self._usable(entry, now)
        lacking = entry.device_bytes - self._free_bytes(entry)
        victims: list[Entry] = []
        for number in usable:
            occupant = self._slots[number].occupant
            if occupant is not None:
                victims.append(occupant)
                lacking -= occupant.device_bytes
            if lacking <= 0:
                return Place(usable[0], tuple(victims))
        return None

    def _usable(self, entry: Entry, now: float) -> list[int]:
        """Slots on which nothing runs and that the adapter may have, those to use first in front."""
        mine = entry.artefact
        idle = [
            (slot, number)
            for number, slot in enumerate(self._slots)
            if slot.reserved_for in (None, mine) and (slot.occupant is None or slot.occupant.pins == 0)
        ]
        if all(slot.occupant is None for slot, _ in idle):
            return [number for _, number in sorted((slot.reserved_for != mine, n) for slot, n in idle)]
        claims, heat = self._look(now).claims, self._look(now).heat
        others = [s.occupant for s, _ in idle if s.occupant is not None and s.reserved_for != mine]
        takeable = claims.takeable(entry.owner, self._size(entry), self._lacking(entry), others)
        bar = self._bar(entry, now)
        gone = set(takeable) - heat.held(takeable, bar)
        keyed = [
            (slot.reserved_for != mine, *self._order(slot, now), number)
            for slot, number in idle
            if slot.reserved_for == mine or slot.occupant is None or slot.occupant in gone
        ]
        return [key[-1] for key in sorted(keyed)]

    def _reserve(self, entry: Entry, now: float, rule: Draining) -> None:
        """As many slots as the adapter's bytes need, of those that will be idle soonest; none if not enough
        may be drained for it yet."""
        lacking = entry.device_bytes - self._free_bytes(entry)
        chosen: list[_Slot] = []
        for slot in self._drainable(entry, now, rule):
            chosen.append(slot)
            lacking -= 0 if slot.occupant is None else slot.occupant.device_bytes
            if lacking <= 0:
                break
        if not chosen or lacking > 0:
            return
        for slot in chosen:
            slot.reserved_for = entry.artefact
        self._waiting_bytes[entry.artefact] = entry.device_bytes

    def _drainable(self, entry: Entry, now: float, rule: Draining) -> list[_Slot]:
        """Slots that may be kept for the adapter, soonest idle first."""
        heat, bar = self._look(now).heat, self._bar(entry, now)
        had_time = [
            slot.occupant
            for slot in self._slots
            if slot.occupant is not None
            and slot.reserved_for is None
            and rule.had_its_time(slot.occupant, now)
            and not heat.shields(slot.occupant, bar)
        ]
        claims, size = self._look(now).claims, self._size(entry)
        takeable = set(claims.takeable(entry.owner, size, self._lacking(entry), had_time))
        slots = [
            slot
            for slot in self._slots
            if slot.reserved_for is None and (slot.occupant is None or slot.occupant in takeable)
        ]
        return sorted(slots, key=lambda slot: (0, 0) if slot.occupant is None else rule.order(slot.occupant))

    def _bar(self, waiter: Entry, now: float) -> float:
        wait = None if waiter.yields else self.waiting.get(waiter)  # a proof drives out nobody popular
        return self._look(now).heat.bar(waiter, waited_s=0.0 if wait is None else now - wait.since)

    def _look(self, now: float) -> _Picture:
        """The claims and the heat of this moment; many that wait are held against them."""
        key = (now, self.epoch, self._changes)
        if self._picture is None or self._picture.key != key:
            occupants = self.occupants
            heat = Heat(occupants, self.waiting, self.num_slots, self._history, self._rules, now)
            self._picture = _Picture(key, heat, Claims(occupants, self._size, self._shares, now))
        return self._picture

    def _order(self, slot: _Slot, now: float) -> _Order:
        occupant = slot.occupant
        if occupant is None:
            return (False, False, False, False, -math.inf, 0)
        picture = self._look(now)
        if occupant not in picture.orders:
            rank = picture.claims.rank(occupant)
            picture.orders[occupant] = (True, *rank, self._worth(occupant, now), occupant.used)
        return picture.orders[occupant]

    def _worth(self, entry: Entry, now: float) -> float:
        if self.budget_bytes is None:
            density = 1.0  # a slot is a slot, and costs nothing to fill
        else:
            density = INSTALL_MS_PER_BYTE + INSTALL_FIXED_MS / max(1, entry.device_bytes)
        return entry.slot_credit + density * self._history.popularity(entry.artefact, now)

    def _size(self, entry: Entry) -> int:
        return 1 if self.budget_bytes is None else entry.device_bytes

    def _lacking(self, entry: Entry) -> float:
        """In the measure of `_size`."""
        if self.budget_bytes is None:
            return 0 if any(s.occupant is None and s.reserved_for is None for s in self._slots) else 1
        return entry.device_bytes - self._free_bytes(entry)

    def _free_bytes(self, entry: Entry) -> float:
        """Bytes that the adapter may use without anybody leaving: all free ones, but for those that others
        wait for with slots reserved."""
        if self.budget_bytes is None:
            return math.inf
        lacking = {name: need for name, need in self._waiting_bytes.items() if name != entry.artefact}
        for slot in self._slots:
            if slot.occupant is not None and slot.reserved_for in lacking:
                lacking[slot.reserved_for] -= slot.occupant.device_bytes
        kept = sum(max(0, need) for need in lacking.values())
        return self.budget_bytes - self.used_bytes - kept


@dataclass(frozen=True, slots=True)
class Draining:
    """Which adapters make way for those that have waited too long."""

    tenure_s: float  # an adapter has its slot for at least this long
    remaining: Callable[[str], int]  # tokens that its running sequences may still take, at most

    def had_its_time(self, entry: Entry, now: float) -> bool:
        return now - entry.installed > self.tenure_s

    def order(self, entry: Entry) -> tuple[int, int]:
        """Soonest idle first."""
        return (self.remaining(entry.artefact), entry.used)
