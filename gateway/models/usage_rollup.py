"""A bucket's sums, made anew from its ledger rows whenever one came; never incremented."""

from __future__ import annotations

from sqlalchemy import Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base
from gateway.models.grain_columns import GrainColumns


class UsageRollup(GrainColumns, Base):
    __tablename__ = "usage_rollups"
    __table_args__ = (
        Index("usage_rollups_bucket", "tenant_id", "bucket"),
        Index(
            "usage_rollups_owner", "owner_id", "bucket", postgresql_where=text("owner_id <> tenant_id")
        ),  # of shared adapters
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True)
    requests: Mapped[int]  # billed ones: at most one attempt of a request bills
    unbilled_attempts: Mapped[int]
    prompt_tokens: Mapped[int]  # billed, as the next two
    cached_tokens: Mapped[int]  # of the prompt
    completion_tokens: Mapped[int]
