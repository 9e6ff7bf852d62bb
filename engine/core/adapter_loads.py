"""Which adapter is loaded next. Requests before hints; disk and store in lanes of their own; owners take
turns, each at most at its rate; and who has waited too long for host memory has what is free kept for it."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable

from engine.core.adapter_entry import Entry, Lane, Wait
from engine.core.adapter_history import History
from engine.core.adapter_loader import Loaders
from engine.core.adapter_rates import LoadRates
from engine.core.adapter_rules import MAX_FAILURES, MAX_PREFETCHES, MAX_PREFETCHES_PER_OWNER
from engine.core.limits import CoreConfig
from engine.core.protocol import AdapterRef

MAX_OWNERS_TRIED = 8
"""Owners for whose loads room is looked for in one poll."""

MakeRoom = Callable[[Entry, int], bool]


class LoadQueue:
    """Loads that are wanted or under way; a load that has ended is the pool's."""

    def __init__(self, config: CoreConfig, loaders: Loaders, history: History) -> None:
        self._config = config
        self._rules = config.adapters
        self._loaders = loaders
        self._history = history
        self._rates = LoadRates(config.adapters)
        self._limits = {Lane.DISK: config.loader_threads, Lane.STORE: config.adapters.store_threads}
        self._pending: OrderedDict[str, Entry] = OrderedDict()
        self._loading: dict[str, Entry] = {}
        self._room_wanted: dict[str, Wait] = {}  # of requests, for room in host memory

    @property
    def is_busy(self) -> bool:
        return bool(self._pending or self._loading)

    @property
    def pending(self) -> list[Entry]:
        return list(self._pending.values())

    @property
    def loading(self) -> list[Entry]:
        return list(self._loading.values())

    def is_pending(self, entry: Entry) -> bool:
        return entry.artefact in self._pending

    def hint_refusal(self, ref: AdapterRef) -> str | None:
        """Why no hint for one more adapter is taken now, or None."""
        if len(self._pending) >= MAX_PREFETCHES:
            return f"{MAX_PREFETCHES} adapters wait to be loaded already."
        hints = sum(entry.users == 0 and entry.owner == ref.owner for entry in self._pending.values())
        if hints >= MAX_PREFETCHES_PER_OWNER:
            return f"{MAX_PREFETCHES_PER_OWNER} adapters of this owner wait to be loaded already."
        return None

    def want(self, entry: Entry) -> None:
        if not entry.loading and entry.artefact not in self._pending:
            entry.lane = Lane.DISK if self._loaders.is_near(entry.ref) else Lane.STORE
            self._pending[entry.artefact] = entry

    def want_from_store(self, entry: Entry) -> None:
        """It was not on disk after all; it goes on where it was, in the other lane."""
        self._end(entry)
        entry.lane = Lane.STORE
        self._pending[entry.artefact] = entry
        self._pending.move_to_end(entry.artefact, last=False)

    def drop(self, entry: Entry) -> None:
        """Nobody wants it any more."""
        self._pending.pop(entry.artefact, None)
        self.stop_waiting_for_room(entry)

    def stop_waiting_for_room(self, entry: Entry) -> None:
        self._room_wanted.pop(entry.artefact, None)

    def finish(self, entry: Entry, num_bytes: int, now: float) -> None:
        """A load has ended; bytes are charged now that they are known."""
        self._end(entry)
        entry.charged = False
        self._rates.charge(entry.owner, now, num_bytes=num_bytes)

    def late_for_room(self, now: float) -> list[Entry]:
        """Who has waited for host memory for too long and lacks nothing else (a thread, its owner's rate),
        longest first."""
        late = [
            (wait.since, artefact)
            for artefact, wait in self._room_wanted.items()
            if now - wait.since > self._config.drain_after_s >= now - wait.tried
        ]
        return [self._pending[artefact] for _, artefact in sorted(late)]

    def is_late(self, entry: Entry, now: float) -> bool:
        """Whether it has waited for host memory for too long."""
        wait = self._room_wanted.get(entry.artefact)
        return wait is not None and now - wait.since > self._config.drain_after_s

    def take_expired(self, now: float) -> list[Entry]:
        """Hints whose time has passed before their load could begin."""
        expired = [entry for entry in self._pending.values() if entry.users == 0 and entry.hint_by < now]
        for entry in expired:
            self.drop(entry)
        return expired

    def start(self, make_room: MakeRoom, exceeds_share: MakeRoom, now: float) -> None:
        """Begins as many loads as threads, rates and room allow. `make_room` tells whether so many bytes are
        free or could be made so, and makes them."""
        under_way = sum(self.likely_bytes(entry) for entry in self._loading.values())
        blocked: set[str] = set()  # owners
        kept = 0
        ranked = iter(self._ranked(now))
        while len(blocked) < MAX_OWNERS_TRIED:
            entry = next((entry for entry in ranked if entry.owner not in blocked), None)
            if entry is None:
                break
            need = self.likely_bytes(entry)
            if make_room(entry, need + under_way + kept):
                self._begin(entry, now)
                under_way += need
                ranked = iter(self._ranked(now))
                continue
            blocked.add(entry.owner)
            if entry.users:
                self._room_wanted.setdefault(entry.artefact, Wait(now, now)).tried = now
                if self.is_late(entry, now) and not exceeds_share(entry, need):
                    kept += need

    def likely_bytes(self, entry: Entry) -> int:
        return min(self._history.likely_bytes(entry.artefact), max(1, self._config.host_budget_bytes))

    def wait_s(self, owner: str, now: float) -> float:
        """Seconds until the owner's rate lets it load again."""
        return self._rates.wait_s(owner, now)

    def next_start_s(self, now: float) -> float | None:
        """Seconds until a load that only waits for its owner's rate can begin; None if there is none."""
        waits = {entry.owner: self._rates.wait_s(entry.owner, now) for entry in self._pending.values()}
        return min((wait for wait in waits.values() if wait > 0), default=None)

    def check(self) -> None:
        assert set(self._room_wanted) <= set(self._pending), "who waits for room is pending"
        assert not set(self._pending) & set(self._loading), "a load is begun once"
        for lane, limit in self._limits.items():
            assert sum(entry.lane is lane for entry in self._loading.values()) <= limit, "threads"

    def _ranked(self, now: float) -> list[Entry]:
        """The loads that threads and rates would allow now, first the one to begin first."""
        counts = Counter((entry.lane, entry.owner) for entry in self._loading.values())
        totals = Counter(entry.lane for entry in self._loading.values())
        open_lanes = {lane for lane, limit in self._limits.items() if totals[lane] < limit}
        if not open_lanes:
            return []
        ready: dict[tuple[str, bool], bool] = {}
        keyed: list[tuple[tuple[bool, float, int, float], int, Entry]] = []
        for number, entry in enumerate(self._pending.values()):
            count = counts[entry.lane, entry.owner]
            is_full = entry.lane is Lane.STORE and count >= self._rules.store_loads_per_owner
            if entry.lane not in open_lanes or is_full:
                continue
            is_hint = entry.users == 0
            who = (entry.owner, is_hint)
            if who not in ready:
                ready[who] = self._rates.wait_s(entry.owner, now, is_hint=is_hint) <= 0
            if ready[who] or entry.charged:
                keyed.append((self._order(entry, count, now), number, entry))
        keyed.sort(key=lambda item: item[:2])
        return [entry for _, _, entry in keyed]

    def _order(self, entry: Entry, count: int, now: float) -> tuple[bool, float, int, float]:
        """Requests first, those late for room before others, then owners with fewer loads under way (one
        owner's slow store must not keep the others out), then hints by when they are due; order of arrival
        decides the rest."""
        late_since = self._room_wanted[entry.artefact].since if self.is_late(entry, now) else math.inf
        return (entry.users == 0, late_since, count, entry.hint_by if entry.users == 0 else 0.0)

    def _begin(self, entry: Entry, now: float) -> None:
        self.drop(entry)
        if not entry.charged:
            entry.charged = True
            self._rates.charge(entry.owner, now, loads=1)
        entry.loading = True
        self._loading[entry.artefact] = entry
        self._loaders.start(entry.ref, entry.lane)

    def _end(self, entry: Entry) -> None:
        entry.loading = False
        del self._loading[entry.artefact]


class Failures:
    """Loads that failed a moment ago, so that a request for such an adapter is answered at once."""

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._failures: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def note(self, artefact: str, error: str, now: float) -> None:
        self._failures.pop(artefact, None)
        self._failures[artefact] = (now + self._memory_s, error)
        while len(self._failures) > MAX_FAILURES:
            self._failures.popitem(last=False)

    def reason(self, artefact: str, now: float) -> str | None:
        until, reason = self._failures.get(artefact, (0.0, ""))
        return reason if now < until else None
