"""That another tenant, or every other, may use an adapter."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import Text

from gateway.models.base import Base, CreatedAt, UpdatedAt


class AdapterShare(Base):
    __tablename__ = "adapter_shares"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        UniqueConstraint(
            "adapter_id", "recipient_id", name="adapter_shares_once", postgresql_nulls_not_distinct=True
        ),
        CheckConstraint("recipient_id <> tenant_id", name="adapter_shares_others"),
        Index("adapter_shares_name", "adapter_name", "recipient_id"),
        Index("adapter_shares_recipient", "recipient_id"),
        Index("adapter_shares_owner", "tenant_id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]  # the adapter's owner
    adapter_id: Mapped[UUID]
    adapter_name: Mapped[str]  # the adapter's, which never changes: look-ups begin here
    recipient_id: Mapped[UUID | None] = mapped_column(ForeignKey("tenants.id"))  # null = every tenant
    reachable: Mapped[list[str] | None] = mapped_column(ARRAY(Text))  # aliases and numbers; null = any
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
