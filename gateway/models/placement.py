"""Where an adapter is wanted, whoever asks for it: desired state, which control applies to the replicas."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, UpdatedAt


class PlacementTier(StrEnum):
    HOST = "host"  # in memory, ready for a slot
    DEVICE = "device"  # in a slot


class Placement(Base):
    __tablename__ = "placements"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"], ondelete="CASCADE"
        ),
        CheckConstraint("replicas between 1 and 256", name="placements_replicas_check"),
        CheckConstraint("tier in ('host', 'device')", name="placements_tier_check"),
        Index("placements_tenant", "tenant_id", "created_at"),
    )

    adapter_id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    version: Mapped[int | None]  # null = whichever `live` points to
    replicas: Mapped[int]
    pinned: Mapped[bool]
    tier: Mapped[str]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
