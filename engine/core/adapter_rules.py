"""Every number of the adapter pool's policy, with its unit (`docs/decisions/0015-adapter-tiers.md` has the
reasons)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_PREFETCHES: Final = 256
"""Hints that wait for a loader thread; more are dropped, since a request loads its adapter anyway."""
MAX_PREFETCHES_PER_OWNER: Final = 32
MAX_FORGETS: Final = 1_024
"""Retirements whose disk copies wait to be dropped; past it the oldest copies are left to the cache's own
budget."""
MAX_FAILURES: Final = 1_024
"""Failed adapter loads remembered at once."""
MAX_HISTORY: Final = 8_192
"""Adapters whose popularity, size and load time are remembered, those that have left included."""
MAX_OWNERS: Final = 4_096
"""Owners whose load rate is followed; one that is forgotten starts with a full allowance."""
MAX_OWNERS_SHOWN: Final = 32
"""Owners in a snapshot."""


@dataclass(frozen=True, slots=True)
class AdapterRules:
    """Nothing changes them later."""

    # threads
    store_threads: int = 8  # loads from the store under way; those from disk have `loader_threads`
    store_loads_per_owner: int = 4  # of them, for one owner

    # rates: an owner that loads more slows only itself
    loads_per_s: float = 10.0
    load_burst: float = 40.0  # loads
    load_bytes_per_s: float = 512 * 1024**2
    load_burst_bytes: float = 4 * 1024**3

    # what an owner may keep from others
    owner_share: float = 0.5  # of a tier; past it, while others want some, an owner makes room out of its own
    kept_adapters: int = 2  # an owner's newest ones stay through the churn of owners that have as many
    kept_share: float = 0.125  # of a tier; more bytes than that aren't kept for one owner
    host_idle_s: float = 60.0  # unused for longer: free for all
    slot_idle_s: float = 1.0  # the same for slots, which cost little to fill again
    hint_keep_s: float = 10.0  # a prefetched adapter waits for its first use this long

    # who keeps a slot while others wait for one
    probation_share: float = 0.125  # of the slots, at least one: no popularity keeps anyone there
    hot_ratio: float = 2.0  # so many times as popular as the least popular: it keeps its slot
    hot_margin: float = 3.0  # and so many requests more
    half_life_s: float = 60.0  # a request counts half as much for popularity after this time
    held_share: float = 0.5  # of the slots, at least one: so many may idle for the popular at a time
    hot_gaps: float = 4.0  # while idle, for so many of its usual gaps between requests
    hot_idle_s: float = 5.0  # but not for longer than this
    slot_deadline_s: float = 10.0  # one that has waited so long gets the next slot, whoever is popular

    def __post_init__(self) -> None:
        assert self.store_threads > 0
        assert 0 < self.store_loads_per_owner <= self.store_threads
        assert self.loads_per_s > 0
        assert self.load_bytes_per_s > 0
        assert 0 < self.owner_share <= 1
        assert 0 <= self.kept_share <= 1
        assert 0 < self.probation_share <= 1
        assert 0 <= self.held_share <= 1

    def num_probation(self, num_slots: int) -> int:
        """Slots through which the unpopular take their turns, at the least."""
        return max(1, int(num_slots * self.probation_share))
