"""The host tier: adapters in this machine's memory, ready for a slot, under a budget of bytes."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter

from engine.core.adapter_claims import Aging, Claims, Shares
from engine.core.adapter_entry import Entry, Reason
from engine.core.adapter_history import History
from engine.core.adapter_rules import AdapterRules


class HostTier:
    """Knows who is in memory and who would have to leave; that they leave is the pool's doing."""

    def __init__(self, budget_bytes: int, rules: AdapterRules, history: History) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self.evictions: Counter[Reason] = Counter()
        self._history = history
        self._entries: dict[str, Entry] = {}
        self._leaving: set[Entry] = set()
        self._changes = 0
        self._claims: tuple[tuple[float, int], Claims] | None = None  # of this moment
        self._aging = Aging()
        self._shares = Shares(
            most=budget_bytes * rules.owner_share,
            kept_adapters=rules.kept_adapters,
            kept_most=budget_bytes * rules.kept_share,
            idle_s=rules.host_idle_s,
            kept_until=attrgetter("host_kept_until"),
        )

    @property
    def entries(self) -> list[Entry]:
        """In the order in which they came."""
        return list(self._entries.values())

    @property
    def clock(self) -> float:
        return self._aging.clock

    def add(self, entry: Entry) -> None:
        assert entry.loaded is not None
        self._changes += 1
        self._entries[entry.artefact] = entry
        self.used_bytes += entry.num_bytes

    def remove(self, entry: Entry, reason: Reason, now: float) -> None:
        """It must be out of its slot by now."""
        assert entry.slot is None
        if reason is not Reason.RETIRED:
            self._aging.advance(self._worth(entry, now))
        self._changes += 1
        del self._entries[entry.artefact]
        self._leaving.discard(entry)
        entry.leaving = False
        self.used_bytes -= entry.num_bytes
        entry.loaded = None
        self.evictions[reason] += 1

    def note_change(self) -> None:
        """Somebody asked for an adapter, or runs on one, or doesn't any more."""
        self._changes += 1

    def claims(self, now: float) -> Claims:
        key = (now, self._changes)
        if self._claims is None or self._claims[0] != key:
            size = attrgetter("num_bytes")
            self._claims = (key, Claims(self._entries.values(), size, self._shares, now))
        return self._claims[1]

    def victims(self, newcomer: Entry, need: int, *, now: float, also_wanted: bool) -> list[Entry] | None:
        """Who leaves so that `need` bytes are free: those on which nothing runs and that nobody wants; with
        `also_wanted` also wanted ones that had their turn. Empty: no need. None: it can't be done now."""
        lacking = self.used_bytes + need - self.budget_bytes
        if lacking <= 0:
            return []
        claims = self.claims(now)
        idle = [e for e in self._entries.values() if _could_go(e) and (also_wanted or e.users == 0)]
        idle = claims.takeable(newcomer.owner, need, lacking, idle)
        return _first_bytes(sorted(idle, key=lambda entry: self._order(entry, claims, now)), lacking)

    def surplus(self, keep: Entry | None, now: float) -> list[Entry]:
        """Who leaves since loads were larger than thought, whatever their claims: the budget comes first.
        What is in use stays, and no load begins before there is room."""
        lacking = self.used_bytes - self.budget_bytes
        if lacking <= 0:
            return []
        claims = self.claims(now)
        idle = [e for e in self._entries.values() if e is not keep and e.pins == 0 and e.users == 0]
        idle.sort(key=lambda entry: self._order(entry, claims, now))
        chosen = _first_bytes(idle, lacking)
        return idle if chosen is None else chosen

    def drain(self, needs: list[tuple[Entry, int]], in_slots: list[Entry], now: float) -> None:
        """Has adapters leave, as soon as nothing runs on them, for those that have waited too long for so
        many bytes each. `in_slots`: who may be chosen, first choice first."""
        before, self._leaving = self._leaving, set()
        claims = self.claims(now) if needs else None
        free = self.budget_bytes - self.used_bytes
        for newcomer, need in needs:
            assert claims is not None
            lacking, free = max(1, need - free), 0
            own = [e for e in self._entries.values() if e.owner == newcomer.owner and _could_go(e)]
            candidates = dict.fromkeys([*sorted(before, key=lambda e: e.used), *own, *in_slots])
            open_to = [entry for entry in candidates if entry not in self._leaving]
            takeable = claims.takeable(newcomer.owner, need, lacking, open_to)
            chosen = _first_bytes(takeable, lacking)
            self._leaving.update(takeable if chosen is None else chosen)
        for entry in before | self._leaving:
            entry.leaving = entry in self._leaving

    def check(self) -> None:
        assert self.used_bytes == sum(entry.num_bytes for entry in self._entries.values()), "host bytes"
        leaving = {entry for entry in self._entries.values() if entry.leaving}
        assert leaving == self._leaving, "who leaves is known"

    def _order(self, entry: Entry, claims: Claims, now: float) -> tuple[bool, bool, bool, bool, float, int]:
        is_wanted, is_within_share, is_kept = claims.rank(entry)
        worth = self._worth(entry, now)
        return (is_wanted, not entry.leaving, is_within_share, is_kept, worth, entry.used)

    def _worth(self, entry: Entry, now: float) -> float:
        """Milliseconds of loading that its memory saves, by the megabyte."""
        popularity = self._history.popularity(entry.artefact, now)
        megabytes = max(1, entry.num_bytes) / 1e6
        return entry.host_credit + popularity * self._history.reload_ms(entry.artefact) / megabytes


def _could_go(entry: Entry) -> bool:
    """Nothing runs on it, and it had its turn or nobody wants it."""
    return entry.pins == 0 and (entry.users == 0 or entry.served)


def _first_bytes(entries: list[Entry], num_bytes: float) -> list[Entry] | None:
    """The first of the entries that have so many bytes together, or None if all of them have less."""
    chosen = []
    for entry in entries:
        if num_bytes <= 0:
            break
        chosen.append(entry)
        num_bytes -= entry.num_bytes
    return chosen if num_bytes <= 0 else None
