"""The slots: which adapters the next step can use. The table is the only one that touches the runner's
slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.core.plan import LoadedAdapter, Runner
from engine.core.protocol import AdapterRef


@dataclass(slots=True)
class Entry:
    """An adapter that is not absent, or that somebody wants."""

    ref: AdapterRef
    users: int = 0  # open requests
    pins: int = 0  # running sequences
    loading: bool = False
    loaded: LoadedAdapter | None = None
    slot: int | None = None
    installed: float = 0.0  # when it got its slot
    served: bool = False  # pinned since it was loaded
    used: int = 0  # the pool's clock of uses, for LRU order
    hinted: bool = False  # a hint waits for it
    leaving: bool = False  # nothing more is admitted on it, so that its host memory becomes free
    retiring: bool = False


@dataclass(slots=True)
class _Slot:
    occupant: Entry | None = None
    reserved_for: str | None = None  # the artefact that gets it next


class SlotTable:
    """A fixed number of slots, each with at most one adapter, and at most one that it is kept for."""

    def __init__(self, num_slots: int, runner: Runner) -> None:
        self._runner = runner
        self._slots = [_Slot() for _ in range(num_slots)]
        self.epoch = 0  # moves whenever any slot's content does
        self.num_evictions = 0

    @property
    def occupants(self) -> list[Entry]:
        return [slot.occupant for slot in self._slots if slot.occupant is not None]

    def occupant(self, number: int) -> Entry | None:
        return self._slots[number].occupant

    def slot_for(self, entry: Entry) -> int | None:
        """The slot in which a sequence of it could run now: its own, one kept for it, an empty one, or that
        of the least recently used adapter on which nothing runs."""
        artefact = entry.ref.artefact
        if entry.slot is not None:
            reserved_for = self._slots[entry.slot].reserved_for
            return entry.slot if reserved_for in (None, artefact) else None
        usable = [
            (slot.reserved_for != artefact, slot.occupant is not None, _age(slot), number)
            for number, slot in enumerate(self._slots)
            if slot.reserved_for in (None, artefact) and (slot.occupant is None or slot.occupant.pins == 0)
        ]
        return min(usable)[-1] if usable else None

    def install(self, entry: Entry, number: int, now: float) -> None:
        """Puts a loaded adapter into a slot that `slot_for` gave."""
        assert entry.loaded is not None
        if (occupant := self._slots[number].occupant) is not None:
            self.empty(occupant)
        self._runner.install(number, entry.loaded.handle)
        self._slots[number].occupant = entry
        entry.slot = number
        entry.installed = now
        self.epoch += 1

    def empty(self, entry: Entry) -> None:
        """Takes an adapter out of its slot, if it is in one."""
        if entry.slot is None:
            return
        assert entry.pins == 0, "a slot in use is never touched"
        self._runner.clear(entry.slot)
        self._slots[entry.slot].occupant = None
        entry.slot = None
        self.epoch += 1
        self.num_evictions += 1

    def reserve(self, artefact: str, now: float, rule: Draining) -> None:
        """Keeps the slot that will be idle first for an adapter, unless one is kept for it already."""
        if any(slot.reserved_for == artefact for slot in self._slots):
            return
        free = [slot.occupant for slot in self._slots if slot.reserved_for is None and slot.occupant]
        for entry in rule.first_idle(free, now)[:1]:
            assert entry.slot is not None
            self._slots[entry.slot].reserved_for = artefact

    def unreserve(self, artefact: str) -> None:
        for slot in self._slots:
            if slot.reserved_for == artefact:
                slot.reserved_for = None


@dataclass(frozen=True, slots=True)
class Draining:
    """Which adapters make way for those that wait."""

    tenure_s: float  # an adapter has its slot for at least this long
    remaining: Callable[[str], int]  # tokens that its running sequences may still take, at most

    def first_idle(self, entries: list[Entry], now: float) -> list[Entry]:
        """Those that were in their slots for long enough, soonest idle first."""
        choices = [entry for entry in entries if now - entry.installed > self.tenure_s]
        return sorted(choices, key=lambda entry: (self.remaining(entry.ref.artefact), entry.used))


def _age(slot: _Slot) -> tuple[bool, int]:
    return (False, 0) if slot.occupant is None else (slot.occupant.users > 0, slot.occupant.used)
