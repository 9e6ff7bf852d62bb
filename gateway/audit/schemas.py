"""Wire types of the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from gateway.models import AuditEvent


class EventOut(msgspec.Struct, frozen=True):
    id: UUID
    tenant: UUID | None
    actor: str
    action: str
    target: str
    details: dict[str, Any]
    request_id: UUID | None
    created_at: datetime

    @classmethod
    def of(cls, event: AuditEvent) -> EventOut:
        return cls(
            id=event.id,
            tenant=event.tenant_id,
            actor=event.actor,
            action=event.action,
            target=event.target,
            details=event.details,
            request_id=event.request_id,
            created_at=event.created_at,
        )


class EventPage(msgspec.Struct, frozen=True):
    data: list[EventOut]
    has_more: bool
