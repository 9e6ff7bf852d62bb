"""Who changed what. Append-only: no role may update or delete, and a trigger says so to the owner too."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import Index
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class AuditEvent(Base):
    __tablename__ = "audit_events"
    __table_args__ = (Index("audit_events_tenant", "tenant_id", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID | None]  # null = the platform itself
    actor: Mapped[str]  # admin:<email> | key:<key id> | system
    action: Mapped[str]  # noun.verb, such as tenant.update
    target: Mapped[str]
    details: Mapped[dict[str, Any]]
    request_id: Mapped[UUID | None]
    created_at: Mapped[CreatedAt]
