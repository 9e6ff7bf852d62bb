"""How many replicas an adapter is served from, and which: its homes.

Homes are the first `k` of a ranking by rendezvous hashing (Thaler and Ravishankar, 1998), which every worker
of every gateway computes alike without asking anyone: a lost replica's adapters move to the next of their
own rankings, and nobody else's. `k` follows the adapter's part of the traffic, in replicas' worth of work:
upwards at once, downwards slowly.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.replicas.replica import LOAD_TOKENS, Replica

BUSY_TOKENS: Final = 4 * LOAD_TOKENS
"""A replica with less to do is not busy: then an adapter has all the room that it needs where it is."""
AVERAGED_S: Final = 10.0
"""Time constant of the averages."""
GROW_AT: Final = 0.9
"""Of `k` replicas' worth of work: past it there is one more home."""
GROW_S: Final = 1.0
"""Between two new homes of an adapter."""
SHRINK_AT: Final = 0.5
"""Of `k - 1` replicas' worth of work: below it for `SHRINK_S`, there is one home less."""
SHRINK_S: Final = 30.0
MAX_FLOWS: Final = 4_096
"""Adapters whose traffic is remembered; the least recently used go first."""
MAX_RANKINGS: Final = 4_096


class Average:
    """Tokens in flight, averaged over the last seconds."""

    __slots__ = ("_at", "_value", "now_tokens")

    def __init__(self) -> None:
        self.now_tokens = 0
        self._value = 0.0
        self._at = 0.0

    def add(self, tokens: int, now: float) -> None:
        self._settle(now)
        self.now_tokens += tokens

    def at(self, now: float) -> float:
        self._settle(now)
        return self._value

    def _settle(self, now: float) -> None:
        if now > self._at:
            self._value += (self.now_tokens - self._value) * -math.expm1((self._at - now) / AVERAGED_S)
            self._at = now


@dataclass(slots=True)
class _Flow:
    average: Average
    homes: int = 1
    grown_at: float = -math.inf
    low_since: float | None = None


class Traffic:
    """What this worker's requests ask of each adapter, and the number of homes that follows. All workers see
    a like share of it, so their numbers agree but for one; rankings are nested, so that costs nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = Average()
        self._flows: OrderedDict[str, _Flow] = OrderedDict()

    def homes(self, artefact: str) -> int:
        flow = self._flows.get(artefact)
        return 1 if flow is None else flow.homes

    def begin(self, artefact: str | None, tokens: int, mean_load: float, num_replicas: int) -> None:
        """`mean_load` of the replicas that may serve it, in tokens."""
        now = self._clock()
        self._all.add(tokens, now)
        if artefact is None:
            return
        flow = self._flows.get(artefact)
        if flow is None:
            flow = self._flows[artefact] = _Flow(Average())
            self._forget_one()
        self._flows.move_to_end(artefact)
        flow.average.add(tokens, now)
        share = flow.average.at(now) / max(self._all.at(now), 1.0)
        self._follow(flow, share * num_replicas * min(1.0, mean_load / BUSY_TOKENS), num_replicas, now)

    def end(self, artefact: str | None, tokens: int) -> None:
        now = self._clock()
        self._all.add(-tokens, now)
        if artefact is not None and (flow := self._flows.get(artefact)) is not None:
            flow.average.add(-tokens, now)

    def _follow(self, flow: _Flow, worth: float, most: int, now: float) -> None:
        """`worth`: the replicas that its work would keep busy."""
        if worth > GROW_AT * flow.homes and flow.homes < most and now - flow.grown_at >= GROW_S:
            flow.homes, flow.grown_at, flow.low_since = flow.homes + 1, now, None
        elif flow.homes > most:
            flow.homes = max(1, most)
        elif flow.homes > 1 and worth < SHRINK_AT * (flow.homes - 1):
            if flow.low_since is None:
                flow.low_since = now
            elif now - flow.low_since >= SHRINK_S:
                flow.homes, flow.low_since = flow.homes - 1, now
        else:
            flow.low_since = None

    def _forget_one(self) -> None:
        """A flow in use stays, so that what began is also seen to end."""
        if len(self._flows) > MAX_FLOWS:
            artefact, flow = next(iter(self._flows.items()))
            if flow.average.now_tokens == 0:
                del self._flows[artefact]
            else:
                self._flows.move_to_end(artefact)


class Rankings:
    """The order in which replicas are an adapter's homes."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, tuple[Replica, ...]], tuple[Replica, ...]] = OrderedDict()

    def of(self, artefact: str, members: tuple[Replica, ...]) -> tuple[Replica, ...]:
        """`members` in the adapter's order. The same tuple of members is found again without hashing."""
        key = (artefact, members)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = rank(artefact, members)
            if len(self._known) > MAX_RANKINGS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return found


def rank(artefact: str, members: Sequence[Replica]) -> tuple[Replica, ...]:
    def weight(replica: Replica) -> bytes:
        return hashlib.blake2b(replica.url.encode(), key=artefact.encode()[:64], digest_size=8).digest()

    return tuple(sorted(members, key=weight))
