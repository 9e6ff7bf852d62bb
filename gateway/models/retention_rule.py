"""How long a tenant's things of one kind are kept, where that differs from the default."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, UpdatedAt


class RetentionRule(Base):
    __tablename__ = "retention_rules"
    __table_args__ = (CheckConstraint("days between 1 and 3650", name="retention_rules_days_check"),)

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)  # of `gateway/retention/kinds.py`
    days: Mapped[int]
    updated_at: Mapped[UpdatedAt]
