"""A moving name for one version of an adapter (`live` is what the bare name answers with)."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ForeignKeyConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, UpdatedAt


class Alias(Base):
    __tablename__ = "aliases"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        ForeignKeyConstraint(
            ["adapter_id", "version"], ["adapter_versions.adapter_id", "adapter_versions.number"]
        ),
    )

    adapter_id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    version: Mapped[int]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
