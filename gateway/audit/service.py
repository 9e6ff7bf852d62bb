"""Writes events in the transaction of the change itself: a change without its event does not happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from gateway.audit import repository
from gateway.db import Database, SystemWrite, TenantWrite
from gateway.ids import uuid7
from gateway.models import AuditEvent
from gateway.principal import TenantId


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asked, and in which request."""

    name: str  # admin:<email> | key:<key id> | system
    request_id: UUID | None = None


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
    session.add(
        AuditEvent(
            id=uuid7(),
            tenant_id=change.tenant,
            actor=actor.name,
            action=change.action,
            target=change.target,
            details=dict(change.details or {}),
            request_id=actor.request_id,
        )
    )


class AuditLog:
    """Reads the log."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def events(self, tenant: TenantId | None, before: UUID | None, limit: int) -> list[AuditEvent]:
        """Newest first; of one tenant, or of all."""
        async with self._db.system_reader() as session:
            return await repository.events(session, tenant, before, limit)
