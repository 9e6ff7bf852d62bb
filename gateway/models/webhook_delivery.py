"""One event on its way to one endpoint, and what became of it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef


class WebhookDelivery(Base):
    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        UniqueConstraint("endpoint_id", "event_id", name="webhook_deliveries_once"),
        Index("webhook_deliveries_due", "next_at", postgresql_where=text("state = 'waiting'")),
        Index("webhook_deliveries_tenant", "tenant_id", "endpoint_id", "id"),
        Index("webhook_deliveries_event", "event_id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[TenantRef]
    endpoint_id: Mapped[UUID] = mapped_column(ForeignKey("webhook_endpoints.id", ondelete="CASCADE"))
    event_id: Mapped[UUID] = mapped_column(ForeignKey("webhook_events.id", ondelete="CASCADE"))
    state: Mapped[str] = mapped_column(server_default=text("'waiting'"))  # waiting | delivered | failed
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    begun_at: Mapped[datetime] = mapped_column(server_default=func.now())  # or begun again, by a redelivery
    next_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_status: Mapped[int | None]  # HTTP, of the last try; null = none came
    last_error: Mapped[str | None]
    last_ms: Mapped[int | None]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
