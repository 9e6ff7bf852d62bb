"""All SQL of changes: what came into the audit log and into the outbox of webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import select

from gateway.changes.kinds import TOLD
from gateway.db import SystemRead
from gateway.models import AuditEvent, WebhookEvent

MOST: Final = 1_000
"""Of each in one look."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Of the audit log."""

    id: UUID
    tenant: UUID | None
    action: str
    target: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Told:
    """An event of webhooks."""

    id: UUID
    tenant: UUID
    kind: str
    data: dict[str, Any]
    at: datetime


async def entries(session: SystemRead, after: UUID) -> list[Entry]:
    """Behind an id, in order; one more than `MOST` at most."""
    query = (
        select(
            AuditEvent.id, AuditEvent.tenant_id, AuditEvent.action, AuditEvent.target, AuditEvent.created_at
        )
        .where(AuditEvent.id > after)
        .order_by(AuditEvent.id)
        .limit(MOST + 1)
    )
    return [Entry(*row) for row in await session.execute(query)]


async def told(session: SystemRead, after: UUID) -> list[Told]:
    """The same, of those kinds that the audit log lacks."""
    query = (
        select(
            WebhookEvent.id,
            WebhookEvent.tenant_id,
            WebhookEvent.kind,
            WebhookEvent.data,
            WebhookEvent.created_at,
        )
        .where(WebhookEvent.id > after, WebhookEvent.kind.in_([kind.value for kind in TOLD]))
        .order_by(WebhookEvent.id)
        .limit(MOST + 1)
    )
    return [Told(*row) for row in await session.execute(query)]
