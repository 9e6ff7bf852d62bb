"""Every attempt that reached a replica, exactly once. Partitioned by month, read off the request id's
time."""

from __future__ import annotations

from sqlalchemy import Index

from gateway.models.base import Base
from gateway.models.usage_columns import UsageColumns


class UsageLedger(UsageColumns, Base):
    __tablename__ = "usage_ledger"
    __table_args__ = (
        Index("usage_ledger_tenant", "tenant_id", "request_id"),
        Index("usage_ledger_ended", "tenant_id", "ended_at"),
        {"postgresql_partition_by": "RANGE (request_id)"},
    )
