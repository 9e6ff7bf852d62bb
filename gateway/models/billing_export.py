"""An export that somebody asked for: its id is its content's, so that asking again finds it."""

from __future__ import annotations

from datetime import date, datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class BillingExport(Base):
    __tablename__ = "billing_exports"
    __table_args__ = (Index("billing_exports_tenant", "tenant_id", "created_at"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID | None] = mapped_column(ForeignKey("tenants.id"))  # null = all tenants
    month: Mapped[date]
    through_seq: Mapped[int]  # last charge in it; 0 = none
    closed: Mapped[bool]  # whether the month was, when it was asked for
    state: Mapped[str]  # waiting | done | failed | superseded
    reason: Mapped[str | None]
    failure: Mapped[str | None]  # `Failure` of its schemas, when it failed
    manifest: Mapped[bytes | None]
    requested_by: Mapped[str]
    created_at: Mapped[CreatedAt]
    finished_at: Mapped[datetime | None]
