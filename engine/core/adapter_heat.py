"""Who is popular among the adapters that have a slot or wait for one, and may keep its slot for that.

Popularity shields most slots (all but `probation_share` of them) from those that are far less asked for, so
that a crowd of rare adapters takes turns on the rest and does not drain the popular ones one after the other.
Where nobody stands out nobody is shielded, and all take turns on all slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice

from engine.core.adapter_entry import Entry
from engine.core.adapter_history import History
from engine.core.adapter_rules import AdapterRules

MAX_WAITING_LOOKED_AT = 256


class Heat:
    """A picture at one moment."""

    def __init__(
        self,
        occupants: list[Entry],
        waiting: Iterable[Entry],
        num_slots: int,
        history: History,
        rules: AdapterRules,
        now: float,
    ) -> None:
        self._history = history
        self._rules = rules
        self._now = now
        self._returning: dict[Entry, bool] = {}
        popularity = {entry: history.popularity(entry.artefact, now) for entry in occupants}
        first = sorted(popularity, key=lambda entry: (-popularity[entry], entry.used))
        self._num_shielded = num_slots - rules.num_probation(num_slots)
        self._num_held = max(1, int(num_slots * rules.held_share))
        self._first = {entry: popularity[entry] for entry in first[: self._num_shielded]}
        looked_at = islice(waiting, MAX_WAITING_LOOKED_AT)
        others = [history.popularity(entry.artefact, now) for entry in looked_at]
        ordered = sorted([*popularity.values(), *others])
        self._usual = ordered[min(1, len(ordered) - 1)] if ordered else 0.0  # the least may be an accident

    def bar(self, waiter: Entry, waited_s: float) -> float:
        """How popular one with a slot must be to keep it from one that waits. Nobody is past the deadline."""
        if waited_s > self._rules.slot_deadline_s:
            return math.inf
        return self._bar(min(self._usual, self._history.popularity(waiter.artefact, self._now)))

    def shields(self, occupant: Entry, bar: float) -> bool:
        return not occupant.leaving and self._first.get(occupant, -math.inf) >= bar

    def is_entitled(self, waiter: Entry) -> bool:
        """Whether one that waits should have one of the shielded slots, since fewer are popular."""
        bar = self._bar(self._usual)
        if self._history.popularity(waiter.artefact, self._now) < bar:
            return False
        return sum(popularity >= bar for popularity in self._first.values()) < self._num_shielded

    def held(self, idle: Iterable[Entry], bar: float) -> set[Entry]:
        """Which of these adapters, on which nothing runs, keep their slots for when they are asked for again.
        A few at the most: if many wait for their return together, what is asked for has changed."""
        shielded = [entry for entry in idle if self.shields(entry, bar) and self._returns_soon(entry)]
        shielded.sort(key=lambda entry: (-self._first[entry], entry.used))
        return set(shielded[: self._num_held])

    def _returns_soon(self, occupant: Entry) -> bool:
        """Whether it is likely to be asked for again before its slot is missed."""
        if occupant not in self._returning:
            self._returning[occupant] = self._is_between_uses(occupant)
        return self._returning[occupant]

    def _is_between_uses(self, occupant: Entry) -> bool:
        if occupant.users:
            return True
        gap_s = self._history.usual_gap_s(occupant.artefact, self._now)
        limit_s = min(self._rules.hot_idle_s, self._rules.hot_gaps * gap_s)
        return gap_s <= self._rules.hot_idle_s and self._now - occupant.used_at <= limit_s

    def _bar(self, usual: float) -> float:
        return self._rules.hot_ratio * usual + self._rules.hot_margin
