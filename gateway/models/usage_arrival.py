"""Buckets into which ledger rows came, written by the ledger's own trigger and taken by the charging job.

A plain queue without a unique key: a mark becomes visible together with the rows that it stands for, and
nobody waits for anybody.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Identity, Index
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class UsageArrival(Base):
    __tablename__ = "usage_arrivals"
    __table_args__ = (Index("usage_arrivals_bucket", "tenant_id", "bucket"),)

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    tenant_id: Mapped[UUID]
    bucket: Mapped[datetime]
    earliest: Mapped[datetime]  # end of the first request among those that came
