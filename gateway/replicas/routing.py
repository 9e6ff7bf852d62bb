"""Who gets a request: the pure core of the router, without any I/O.

Everything is weighed in tokens of work. A replica's cost is what it has to do already, plus what the load of
the adapter costs where it does not lie, less what its prefix cache saves. Among the replicas that may take
the request the least cost wins, and the one that was chosen longest ago among equals. Who may:

    a session              its home, while that lives and has no more than `STICKY` times the mean to do
    the base               all replicas under the bound
    an adapter             its homes (`placement.py`) and whoever holds it, those under the bound
    an adapter, all of     the next of its ranking under the bound, if that one's swap budget has something
      them over the bound    left; else the least loaded of its own

The bound is `BOUND` times the mean (consistent hashing with bounded loads; Mirrokni, Thorup, Zadimoghaddam,
2016), and not less than what makes a replica busy: a small difference moves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.replicas.memory import MAX_ENTRIES, Prefixes, Sessions
from gateway.replicas.metrics import CHOICES
from gateway.replicas.placement import BUSY_TOKENS, Rankings, Traffic
from gateway.replicas.replica import IN_HOST, LOAD_TOKENS, Replica
from gateway.replicas.want import Want

BOUND: Final = 1.25
STICKY: Final = 2.0
FLOOR_TOKENS: Final = BUSY_TOKENS
STRAY_TOKENS: Final = LOAD_TOKENS // 2
"""What a replica that holds the adapter without being its home costs more, so that its copy falls out of use
when there is no need of it."""
EXTRA: Final = 2.0
"""How many times as much a load counts that need not be, since another replica holds the adapter."""
SPILL_TOKENS: Final = 2 * LOAD_TOKENS
"""How much less than all that may serve it a replica must have to do to get an adapter that isn't its own."""
EVICTION_TOKENS: Final = LOAD_TOKENS // 2
"""What a load costs the adapter that has to leave its slot for it."""
COLD_HOMES: Final = 2
SWAP_BURST: Final = 4.0
SWAPS_PER_S: Final = 0.1
"""Loads that adapters may cause on one replica that is not their home."""


@dataclass(slots=True)
class _Swaps:
    """A replica's budget of loads for strangers."""

    left: float = SWAP_BURST
    at: float = 0.0

    def refill(self, now: float) -> float:
        self.left = min(SWAP_BURST, self.left + max(0.0, now - self.at) * SWAPS_PER_S)
        self.at = now
        return self.left


class Router:
    """One per worker. `choose` changes nothing; what is really sent, `note` learns."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, max_entries: int = MAX_ENTRIES
    ) -> None:
        self._clock = clock
        self.prefixes = Prefixes(max_entries)
        self.sessions = Sessions(max_entries)
        self.traffic = Traffic(clock)
        self._rankings = Rankings()
        self._swaps: dict[Replica, _Swaps] = {}
        self._turn = 0

    def choose(
        self, able: Sequence[Replica], want: Want, members: tuple[Replica, ...] | None = None
    ) -> Replica | None:
        """The best of `able`; None when there is none. `members` are all of their pool, also those that
        can't take anything now: homes are ranked among them, so that one that comes back is one again."""
        if len(able) < 2:
            return able[0] if able else None
        mean = _weigh(able) / len(able)
        if want.session is not None:
            home = self.sessions.home(want.tenant, want.session)
            if home is not None and home in able and home.load <= max(STICKY * mean, FLOOR_TOKENS):
                return home
        saved = self.prefixes.saved_tokens(want.tenant, want.prefix) if want.prefix else {}
        bound = max(BOUND * mean, FLOOR_TOKENS)
        if want.artefact is None:
            return _cheapest(able, bound, saved) or min(able, key=_by_load)
        return self._for_adapter(able, want.artefact, members or tuple(able), bound, saved)

    def note(
        self,
        replica: Replica,
        want: Want,
        able: Sequence[Replica],
        members: tuple[Replica, ...] | None = None,
    ) -> None:
        """A request goes to `replica`; `able` are those that could have taken it."""
        self._turn += 1
        replica.turn = self._turn
        num = len(able)
        if want.artefact is not None and replica.residency(want.artefact) < IN_HOST:
            if num > 1 and replica not in self.homes(want.artefact, able, members or tuple(able)):
                self._swap_budget(replica).left -= 1.0
                CHOICES.labels("swap").inc()
            else:
                CHOICES.labels("load").inc()
            replica.expect(want.artefact)
        if num > 1:
            self._remember(replica, want, able)
        self.traffic.begin(want.artefact, want.tokens, _weigh(able) / num if num else 0.0, num)

    def ended(self, want: Want) -> None:
        self.traffic.end(want.artefact, want.tokens)

    def homes(self, artefact: str, able: Sequence[Replica], members: tuple[Replica, ...]) -> list[Replica]:
        """The replicas that may load the adapter without a swap, of those that can take something."""
        order = [replica for replica in self._rankings.of(artefact, members) if replica in able]
        held = any(replica.residency(artefact) >= IN_HOST for replica in order)
        return order[: self._num_homes(artefact, held=held)]

    def forget(self, gone: Replica) -> None:
        self._swaps.pop(gone, None)

    def _for_adapter(
        self,
        able: Sequence[Replica],
        artefact: str,
        members: tuple[Replica, ...],
        bound: float,
        saved: dict[Replica, int],
    ) -> Replica:
        order: Sequence[Replica] = self._rankings.of(artefact, members)
        if len(able) != len(members):
            order = [replica for replica in order if replica in able]
        parts = [replica.held.get(artefact) or replica.residency(artefact) for replica in order]
        held = max(parts) >= IN_HOST
        num_homes = self._num_homes(artefact, held=held)
        best: Replica | None = None
        best_cost = 0.0
        least = able[0]
        own = 0
        for place, replica in enumerate(order):
            part = parts[place]
            if part < IN_HOST and place >= num_homes:
                continue
            load = replica.load
            if own == 0 or load < least.load:
                least = replica
            own += 1
            if load > bound:
                continue
            cost = load + LOAD_TOKENS * (1 - part)
            if part < IN_HOST:
                cost += LOAD_TOKENS * (EXTRA - 1) * held + EVICTION_TOKENS * replica.full
            elif place >= num_homes > 0:
                cost += STRAY_TOKENS
            if saved and replica in saved:
                cost -= saved[replica]
            if best is None or cost < best_cost or (cost == best_cost and replica.turn < best.turn):
                best, best_cost = replica, cost
        if best is not None:
            return best
        if own == len(order):
            return least
        others = [one for place, one in enumerate(order) if parts[place] < IN_HOST and place >= num_homes]
        return self._stranger(others, min(bound, least.load - SPILL_TOKENS)) or least

    def _num_homes(self, artefact: str, *, held: bool) -> int:
        """One that needs a single home has it where it lies. One that nobody holds may choose between two:
        that spreads few adapters far more evenly than one hash does (the power of two choices; Mitzenmacher,
        2001)."""
        num_homes = self.traffic.homes(artefact)
        if num_homes > 1:
            return num_homes
        return 0 if held else COLD_HOMES

    def _stranger(self, others: Sequence[Replica], most: float) -> Replica | None:
        """The next of the ranking, always the same one, so that what was loaded there once is used again."""
        now = self._clock()
        for replica in others:
            if replica.load <= most and self._swap_budget(replica).refill(now) >= 1.0:
                return replica
        return None

    def _swap_budget(self, replica: Replica) -> _Swaps:
        found = self._swaps.get(replica)
        if found is None:
            found = self._swaps[replica] = _Swaps(at=self._clock())
        return found

    def _remember(self, replica: Replica, want: Want, able: Sequence[Replica]) -> None:
        if want.session is not None:
            home = self.sessions.home(want.tenant, want.session)
            self.sessions.note(want.tenant, want.session, replica, keep=home in able)
        if want.prefix:
            self.prefixes.note(want.tenant, want.prefix, replica)


def _weigh(able: Sequence[Replica]) -> int:
    """The sum of their loads, each of which stays on its replica."""
    total = 0
    for replica in able:
        load = replica.in_flight_tokens + replica.elsewhere_tokens + replica.view.waiting_tokens
        replica.load = load
        total += load
    return total


def _cheapest(able: Sequence[Replica], bound: float, saved: dict[Replica, int]) -> Replica | None:
    """The least loaded under the bound, cached prefixes counted; who waited longest among equals."""
    best: Replica | None = None
    best_cost = 0.0
    for replica in able:
        load = replica.load
        if load > bound:
            continue
        cost = load - saved[replica] if replica in saved else load
        if best is None or cost < best_cost or (cost == best_cost and replica.turn < best.turn):
            best, best_cost = replica, cost
    return best


def _by_load(replica: Replica) -> tuple[int, int]:
    return replica.load, replica.turn
