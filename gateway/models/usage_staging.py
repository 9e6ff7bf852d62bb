"""Where ledger rows land by COPY, which row-level security refuses on the ledger itself.

One transaction: COPY with a fresh `batch`, INSERT … SELECT … ON CONFLICT DO NOTHING into the ledger, DELETE
the batch. Nothing outlives that transaction, so the table is unlogged.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base
from gateway.models.usage_columns import UsageColumns


class UsageStaging(UsageColumns, Base):
    __tablename__ = "usage_staging"
    __table_args__ = ({"prefixes": ["UNLOGGED"]},)

    batch: Mapped[UUID] = mapped_column(primary_key=True)
