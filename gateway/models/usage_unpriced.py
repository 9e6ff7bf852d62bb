"""Buckets with usage from before the first price book version: a state, not a price of zero."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class UsageUnpriced(Base):
    __tablename__ = "usage_unpriced"

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    bucket: Mapped[datetime] = mapped_column(primary_key=True)
