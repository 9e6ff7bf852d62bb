"""Writes events in the transaction of the change itself: a change without its event does not happen. Reads
them back, and walks their chains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from gateway.audit import repository
from gateway.audit.chain import GENESIS, Broken, Head, Link, Walk
from gateway.audit.redaction import redacted, redacted_text
from gateway.audit.repository import EventFilters
from gateway.db import Database, SystemWrite, TenantWrite
from gateway.errors import BadRequest
from gateway.ids import uuid7
from gateway.models import AuditEvent
from gateway.paging import ById
from gateway.principal import TenantId

PAGE_LINKS: Final = 1_000
MAX_LINKS: Final = 100_000
"""Of one call to verify; a longer chain is walked in several, each from where the one before ended."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asked, and in which request."""

    name: str  # admin:<email> | key:<key id> | system
    request_id: UUID | None = None
    token: str | None = (
        None  # public id of a membership's: its tenant's administrator gave it out, to anybody
    )


SYSTEM = Actor("system")


@dataclass(frozen=True, slots=True)
class Change:
    """What was done: `action` is noun.verb, `target` an id or name, `details` what a reader needs to
    understand it."""

    action: str
    target: str
    tenant: TenantId | None = None  # None = the platform itself
    details: Mapping[str, Any] | None = None


def record(session: TenantWrite | SystemWrite, actor: Actor, change: Change) -> None:
    """What looks like a credential is left out: see `redaction.py`."""
    session.add(
        AuditEvent(
            id=uuid7(),
            tenant_id=change.tenant,
            actor=redacted_text(actor.name),
            action=change.action,
            target=redacted_text(change.target),
            details=redacted(change.details or {})
            | ({} if actor.token is None else {"by_token": actor.token}),
            request_id=actor.request_id,
        )
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a walk found. `complete` False: it holds up to `seq`, and goes on behind it."""

    chain: UUID
    seq: int
    hash: bytes
    checked: int
    complete: bool
    broken: Broken | None


class AuditLog:
    """Reads the log."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def events(self, wanted: EventFilters, after: ById | None, limit: int) -> list[AuditEvent]:
        """Newest first."""
        async with self._db.system_reader() as session:
            return await repository.events(session, wanted, after, limit)

    async def head(self, chain: UUID) -> Head:
        """The end of a chain; place 0 for one that has not begun."""
        async with self._db.system_reader() as session:
            return await repository.head(session, chain) or Head(chain, 0, GENESIS)

    async def heads(self, after: ById | None, limit: int) -> list[Head]:
        async with self._db.system_reader() as session:
            return await repository.heads(session, after, limit)

    async def verify(self, chain: UUID, after: int = 0, kept: Head | None = None) -> Verdict:
        """Walks the chain from behind place `after`. Raises `BadRequest` when there is no such place."""
        walk = Walk(after, await self._hash_at(chain, after), kept)
        broken, complete = None, False
        while broken is None and not complete and walk.checked < MAX_LINKS:
            links = await self._links(chain, walk.seq)
            broken = await asyncio.to_thread(_follow, walk, links)
            complete = len(links) < PAGE_LINKS
        if broken is None and complete:
            broken = walk.end() or await self._unlinked(chain, walk.seq)
        return Verdict(chain, walk.seq, walk.last, walk.checked, complete, broken)

    async def export(self, chain: UUID, after: int = 0) -> AsyncIterator[list[Link]]:
        """The chain from behind place `after`, in pages that are read as they are asked for."""
        while links := await self._links(chain, after):
            yield links
            after = links[-1].seq

    async def _links(self, chain: UUID, after: int) -> list[Link]:
        async with self._db.system_reader() as session:
            return await repository.links(session, chain, after, PAGE_LINKS)

    async def _hash_at(self, chain: UUID, seq: int) -> bytes:
        if seq == 0:
            return GENESIS
        async with self._db.system_reader() as session:
            found = await repository.link_hash(session, chain, seq)
        if found is None:
            raise BadRequest("The chain has no such place.", param="after", code="invalid_value")
        return found

    async def _unlinked(self, chain: UUID, seq: int) -> Broken | None:
        async with self._db.system_reader() as session:
            event = await repository.first_unlinked(session, chain)
        return None if event is None else Broken(seq + 1, event, "unlinked")


def _follow(walk: Walk, links: Sequence[Link]) -> Broken | None:
    for link in links:
        broken = walk.take(link)
        if broken is not None:
            return broken
    return None
