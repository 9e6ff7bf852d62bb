"""What each owner may keep of a tier, and in which order adapters leave it.

The order is Greedy-Dual-Size-Frequency (Cherkasova 1998): an adapter is worth the tier's clock at its last
use + its popularity x its reload cost / its size; the least worth goes first, and the clock moves up to it.
So large, cheap and unpopular ones leave early, and what was popular once ages. Owners come before worth: one
that holds more than its share makes room out of its own, and the newest few of each owner stay through the
churn of those who hold as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass

from engine.core.adapter_entry import Entry


@dataclass(slots=True)
class Aging:
    """A tier's clock. It only moves up, to the worth of each adapter that leaves for want of room."""

    clock: float = 0.0

    def advance(self, worth: float) -> None:
        self.clock = max(self.clock, worth)


@dataclass(frozen=True, slots=True)
class Shares:
    """One tier's rules, in the tier's measure (bytes, or slots where bytes aren't bounded)."""

    most: float  # of one owner, while others want some
    kept_adapters: int
    kept_most: float  # kept for one owner
    idle_s: float  # unused for longer: free for all
    kept_until: Callable[[Entry], float]  # for its sake alone, while its owner has no more than its share


class Claims:
    """Who holds what of a tier at one moment."""

    def __init__(
        self, entries: Iterable[Entry], size: Callable[[Entry], int], shares: Shares, now: float
    ) -> None:
        self._size = size
        self._shares = shares
        self._now = now
        self._held: Counter[str] = Counter()
        self._count: Counter[str] = Counter()
        self._kept: set[str] = set()
        kept_count: Counter[str] = Counter()
        kept_size: Counter[str] = Counter()
        for entry in sorted(entries, key=lambda entry: entry.used, reverse=True):
            owner = entry.owner
            self._held[owner] += size(entry)
            self._count[owner] += 1
            if kept_count[owner] >= shares.kept_adapters or self._is_stale(entry):
                continue
            if kept_size[owner] + size(entry) <= shares.kept_most:
                self._kept.add(entry.artefact)
                kept_count[owner] += 1
                kept_size[owner] += size(entry)

    def exceeds_share(self, owner: str, more: float) -> bool:
        """Whether the owner would hold more than its share. Its first adapter never does."""
        return self._held[owner] > 0 and self._held[owner] + more > self._shares.most

    def may_take(self, owner: str, more: float, victim: Entry) -> bool:
        """Whether the place of `victim` may go to an adapter of this owner and size, once nothing runs on
        it."""
        if victim.owner == owner or self._is_stale(victim):
            return True
        if self.exceeds_share(owner, more):
            return False
        if self._held[victim.owner] > self._shares.most:
            return True
        if victim.artefact in self._kept:
            return self._count[owner] < self._shares.kept_adapters
        return self._shares.kept_until(victim) < self._now or self._count[owner] == 0

    def takeable(self, owner: str, size: int, lacking: float, candidates: list[Entry]) -> list[Entry]:
        """Of the candidates, those that an adapter of this owner may replace. If they are less than it lacks,
        those that it may replace once all of its owner's have gone.

        So nobody is locked out: an owner to whom `may_take` forbids what others hold has something itself."""
        by_right = [victim for victim in candidates if self.may_take(owner, size, victim)]
        if sum(self._size(victim) for victim in by_right) >= lacking:
            return by_right
        own = [victim for victim in candidates if victim.owner == owner]
        rest = copy(self)
        rest._held = self._held - Counter({owner: sum(self._size(victim) for victim in own)})
        rest._count = self._count - Counter({owner: len(own)})
        return [v for v in candidates if v.owner == owner or rest.may_take(owner, size, v)]

    def rank(self, victim: Entry) -> tuple[bool, bool, bool]:
        """Before worth counts: the unwanted go first, of owners above their share or long idle, not kept."""
        is_kept = victim.artefact in self._kept or self._shares.kept_until(victim) >= self._now
        is_within_share = self._held[victim.owner] <= self._shares.most and not self._is_stale(victim)
        return (victim.users > 0, is_within_share, is_kept)

    def _is_stale(self, entry: Entry) -> bool:
        is_idle = entry.users == 0 and entry.pins == 0 and self._shares.kept_until(entry) < self._now
        return is_idle and self._now - entry.used_at > self._shares.idle_s
