"""Something of a tenant that its webhooks tell of: written in the transaction of what happened."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef


class WebhookEvent(Base):
    __tablename__ = "webhook_events"
    __table_args__ = (
        UniqueConstraint("tenant_id", "once", name="webhook_events_once"),
        Index("webhook_events_waiting", "created_at", postgresql_where=text("spread_at IS NULL")),
        Index("webhook_events_age", "created_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)  # UUIDv7; the `webhook-id` of its deliveries
    tenant_id: Mapped[TenantRef]
    kind: Mapped[str]
    once: Mapped[str]  # what makes a second publication of the same fact a no-op
    data: Mapped[dict[str, Any]]
    created_at: Mapped[CreatedAt]
    spread_at: Mapped[datetime | None]  # when each endpoint that wants it got a delivery
