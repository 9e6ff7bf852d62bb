"""Loads and evictions as they happen, from the states that replicas tell: the last ones, in memory. Each
worker hears all of them within a quarter of a second."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from gateway.replicas.driver import ReplicaView
from gateway.replicas.registry import Registry
from gateway.replicas.replica import Replica

MOST_KEPT: Final = 1_000

Tier = Literal["device", "host", "none"]


@dataclass(frozen=True, slots=True)
class Move:
    """`none`: on the replica's disk at most."""

    at: datetime
    replica: str
    artefact: str
    before: Tier
    after: Tier


class Moves:
    """One a worker."""

    def __init__(self, registry: Registry) -> None:
        self._kept: deque[Move] = deque(maxlen=MOST_KEPT)
        self.number = 0  # of those that were heard of, the last one's
        registry.on_view = self._hear

    def latest(self, limit: int, since: datetime | None = None) -> list[Move]:
        """Newest first."""
        found = (move for move in reversed(self._kept) if since is None or move.at >= since)
        return [move for move, _ in zip(found, range(limit), strict=False)]

    def behind(self, number: int) -> list[Move]:
        """Those after the one of this number, as far as they are kept; oldest first."""
        new = min(self.number - number, len(self._kept))
        return list(self._kept)[len(self._kept) - new :] if new > 0 else []

    def _hear(self, replica: Replica, before: ReplicaView) -> None:
        if before.base_id is None:  # heard of for the first time: what it holds came earlier
            return
        view, at = replica.view, datetime.now(UTC)
        for artefact in sorted((before.device ^ view.device) | (before.host ^ view.host)):
            self._kept.append(
                Move(at, replica.url, artefact, tier_in(before, artefact), tier_in(view, artefact))
            )
            self.number += 1


def tier_in(view: ReplicaView, artefact: str) -> Tier:
    if artefact in view.device:
        return "device"
    return "host" if artefact in view.host else "none"


def lies(replica: Replica, artefact: str) -> Literal["device", "host", "disk", "none"]:
    """`disk`: as far as it is remembered."""
    tier = tier_in(replica.view, artefact)
    return "disk" if tier == "none" and artefact in replica.on_disk else tier


def holders(replicas: Iterable[Replica], artefact: str) -> list[tuple[Replica, Tier]]:
    """The replicas that are well and have it in memory."""
    found = ((one, tier_in(one.view, artefact)) for one in replicas if one.healthy)
    return [(replica, tier) for replica, tier in found if tier != "none"]
