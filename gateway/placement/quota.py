"""How much of the replicas' memory a tenant's placements may take: nobody pins the fleet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.models import PlacementQuota
from gateway.placement.repository import Placed


@dataclass(frozen=True, slots=True)
class Quota:
    """Over all replicas: an adapter of 10 MB on three of them takes 30 MB."""

    slots: int
    bytes: int

    def allows(self, placed: Iterable[Placed]) -> bool:
        slots, num_bytes = sums(placed)
        return slots <= self.slots and num_bytes <= self.bytes

    def within(self, placed: Iterable[Placed]) -> list[Placed]:
        """Those that are applied: the oldest ones, as far as it goes. What does not fit leaves its room to
        younger ones that do."""
        kept: list[Placed] = []
        for each in placed:
            if self.allows([*kept, each]):
                kept.append(each)
        return kept


def quota_of(own: PlacementQuota | None, default: Quota) -> Quota:
    """What an operator set for the tenant, or the default."""
    return default if own is None else Quota(own.slots, own.bytes)


def sums(placed: Iterable[Placed]) -> tuple[int, int]:
    """Slots and bytes."""
    listed = list(placed)
    return sum(one.slots_wanted for one in listed), sum(one.bytes_wanted for one in listed)
