"""What is to be asked of which replica now, so that each holds what is wanted of it: pure, without any I/O.

An adapter is wanted on the first of its ranking (`replicas.placement.rank`), which is where the router sends
it: so control and workers agree without a word. Two things are asked for:

    placed   a tenant asked for it: kept by hints that are renewed before they lapse, or, if not pinned,
             brought back when it was lost, once in `BACK_S`
    warm     it was asked for lately, and a replica that held it has started anew: once

What nobody renews lapses by itself: if control stops, nothing stays pinned for ever.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.models import PlacementTier
from gateway.replicas.placement import rank
from gateway.replicas.replica import IN_HOST, Replica

KEEP_S: Final = 60.0
"""How long a replica keeps what it was asked to; asked again after a third of it."""
RENEW_S: Final = KEEP_S / 3
BACK_S: Final = 60.0
"""Between two loads of an adapter that is wanted, not pinned, and pushed out by others."""
MOST_CALLS: Final = 16
"""Of one replica in one round; the rest waits for the next, and what was not asked for longest goes first."""
MOST_WARM: Final = 256
"""Adapters that are brought back after a start; about what a replica takes hints of at a time."""
WARM_S: Final = 60.0
"""So long after a replica's start it is warmed; what was not asked of it by then, requests load."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One placement, as far as it is to be applied."""

    artefact: str
    owner: UUID
    replicas: int
    pinned: bool
    tier: PlacementTier
    members: tuple[Replica, ...]  # of the pool that its requests go to


@dataclass(frozen=True, slots=True)
class Hot:
    """One that was asked for lately."""

    artefact: str
    owner: UUID
    members: tuple[Replica, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """`keep_s` None: to be loaded, no more."""

    replica: Replica
    artefact: str
    owner: UUID
    keep_s: float | None = None
    on_device: bool = False


@dataclass(slots=True)
class _Seen:
    """A replica as of the last look at which it was well."""

    life: int
    sequence: int
    held: frozenset[str]


def homes(artefact: str, members: Sequence[Replica], number: int) -> tuple[Replica, ...]:
    """The replicas that should hold it, of those that new requests may go to."""
    return rank(artefact, members)[:number]


class Planner:
    """What the leader remembers between two rounds. All of it may be lost."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._started: dict[str, frozenset[str]] = {}  # replicas that began a life, and what they held before
        self._asked: dict[tuple[str, str], float] = {}
        self._warming: OrderedDict[tuple[str, str], tuple[float, Call]] = OrderedDict()

    def look(self, replicas: Sequence[Replica]) -> bool:
        """Takes in how the replicas are; whether one of them has begun a life, so that `warm` has work."""
        for replica in replicas:
            if replica.healthy:
                self._look_at(replica)
        gone = set(self._seen) - {replica.url for replica in replicas}
        for url in gone:
            del self._seen[url]
            self._started.pop(url, None)
        return bool(self._started)

    def warm(self, hot: Iterable[Hot]) -> None:
        """Of those, hottest first, what lies nowhere any more, or on fewer replicas than before the start."""
        until = self._clock() + WARM_S
        for each in hot:
            for replica in self._cold_homes(each):
                if len(self._warming) < MOST_WARM:
                    call = Call(replica, each.artefact, each.owner)
                    self._warming[replica.url, each.artefact] = (until, call)
        self._started = {}

    def plan(self, wanted: Sequence[Wanted]) -> list[Call]:
        """What is to be asked now: at most `MOST_CALLS` of each replica."""
        now = self._clock()
        due: list[tuple[float, Call]] = []
        for each in wanted:
            for replica in homes(each.artefact, each.members, each.replicas):
                call = _call(each, replica)
                asked = self._asked.get((replica.url, each.artefact))
                if replica.usable and _is_due(each, replica, asked, now):
                    due.append((asked if asked is not None else float("-inf"), call))
        due.sort(key=lambda one: one[0])
        chosen = _at_most([call for _, call in due] + self._warm_calls(now))
        for call in chosen:
            self._asked[call.replica.url, call.artefact] = now
            self._warming.pop((call.replica.url, call.artefact), None)
        self._forget(now)
        return chosen

    def failed(self, call: Call) -> None:
        """It did not reach the replica: to be asked again in the next round."""
        self._asked.pop((call.replica.url, call.artefact), None)

    def _look_at(self, replica: Replica) -> None:
        held = replica.view.device | replica.view.host
        seen = self._seen.get(replica.url)
        if seen is None:
            self._started[replica.url] = frozenset()
        elif replica.life != seen.life or replica.view.sequence < seen.sequence or (seen.held and not held):
            self._started[replica.url] = seen.held
            self._asked = {key: at for key, at in self._asked.items() if key[0] != replica.url}
        self._seen[replica.url] = _Seen(replica.life, replica.view.sequence, held)

    def _cold_homes(self, hot: Hot) -> list[Replica]:
        """Where it should lie again: on as many of its ranking as held it before."""
        able = [replica for replica in hot.members if replica.usable]
        holding = sum(replica.residency(hot.artefact) >= IN_HOST for replica in able)
        lost = sum(hot.artefact in before for before in self._started.values())
        missing = max(1, holding + lost) - holding
        if missing <= 0 or (holding and not lost):
            return []
        order = [replica for replica in rank(hot.artefact, hot.members) if replica in able]
        return [r for r in order if r.residency(hot.artefact) < IN_HOST][:missing]

    def _warm_calls(self, now: float) -> list[Call]:
        over = [key for key, (until, call) in self._warming.items() if until < now or not call.replica.serves]
        for key in over:
            del self._warming[key]
        return [call for _, call in self._warming.values() if call.replica.usable]

    def _forget(self, now: float) -> None:
        """What was asked so long ago that it makes no difference."""
        oldest = now - max(BACK_S, KEEP_S)
        self._asked = {key: at for key, at in self._asked.items() if at > oldest}


def _call(wanted: Wanted, replica: Replica) -> Call:
    keep_s = KEEP_S if wanted.pinned else None
    on_device = wanted.pinned and wanted.tier is PlacementTier.DEVICE
    return Call(replica, wanted.artefact, wanted.owner, keep_s, on_device)


def _is_due(wanted: Wanted, replica: Replica, asked: float | None, now: float) -> bool:
    if wanted.pinned:
        return asked is None or now - asked >= RENEW_S
    lacks = replica.residency(wanted.artefact) < IN_HOST
    return lacks and (asked is None or now - asked >= BACK_S)


def _at_most(calls: Iterable[Call]) -> list[Call]:
    """The first `MOST_CALLS` of each replica, each adapter once."""
    chosen: dict[tuple[str, str], Call] = {}
    number: dict[str, int] = {}
    for call in calls:
        key = (call.replica.url, call.artefact)
        if key not in chosen and number.get(call.replica.url, 0) < MOST_CALLS:
            chosen[key] = call
            number[call.replica.url] = number.get(call.replica.url, 0) + 1
    return list(chosen.values())
