"""What replicas did since the last look: which adapters came or went, and who is in another state."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from gateway.changes.kinds import Kind
from gateway.changes.schemas import Change
from gateway.db import Database
from gateway.ids import uuid7
from gateway.placement.moves import Move, Moves
from gateway.placement.repository import named
from gateway.replicas.registry import Registry
from gateway.replicas.replica import Replica

MOST_NAMED: Final = 20
"""Objects of one change; more are said by none."""


class FleetTail:
    """Belongs to one feed."""

    def __init__(self, db: Database, base_id: str, registry: Registry, moves: Moves) -> None:
        self._db = db
        self._base_id = base_id
        self._registry = registry
        self._moves = moves
        self._number = 0
        self._states: dict[str, tuple[object, ...]] = {}

    def forget(self) -> None:
        """What was until now is not told any more."""
        self._number = self._moves.number
        self._states = {replica.url: _state(replica) for replica in self._registry.all}

    async def look(self) -> tuple[list[Change], bool]:
        """What is new, and whether that is all. Replicas for operators; adapters for their owners, who see
        how many replicas hold them but not which. Raises `Unavailable`."""
        moved, number = self._moves.behind(self._number), self._moves.number
        complete = number - self._number == len(moved)
        owners = await self._owners(moved) if moved else {}
        self._number = number
        states = {replica.url: _state(replica) for replica in self._registry.all}
        before, self._states = self._states, states
        other = [url for url in {**before, **states} if before.get(url) != states.get(url)]
        found = [_change("move", None, {move.replica for move in moved})] if moved else []
        found += [_change("placement", tenant, adapters) for tenant, adapters in owners.items()]
        return [*found, *([_change("replica", None, other)] if other else [])], complete

    async def _owners(self, moved: list[Move]) -> dict[UUID, set[str]]:
        """Adapters that moved, by their tenants."""
        async with self._db.system_reader() as session:
            found = await named(session, self._base_id, {move.artefact for move in moved})
        owners: dict[UUID, set[str]] = {}
        for each in found.values():
            owners.setdefault(each.tenant, set()).add(each.adapter)
        return owners


def _state(replica: Replica) -> tuple[object, ...]:
    return (
        replica.healthy,
        replica.unfit,
        replica.breaker.state,
        replica.draining,
        replica.view.base_digest,
    )


def _change(kind: Kind, tenant: UUID | None, objects: Iterable[str]) -> Change:
    named_objects = sorted(objects)
    return Change(
        id=uuid7(),
        kind=kind,
        tenant=tenant,
        objects=named_objects if len(named_objects) <= MOST_NAMED else [],
        at=datetime.now(UTC),
    )
