"""How much of the replicas' memory a tenant's placements may take, where that differs from the default."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, UpdatedAt


class PlacementQuota(Base):
    __tablename__ = "placement_quotas"
    __table_args__ = (
        CheckConstraint("slots >= 0", name="placement_quotas_slots_check"),
        CheckConstraint("bytes >= 0", name="placement_quotas_bytes_check"),
    )

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    slots: Mapped[int]  # over all replicas
    bytes: Mapped[int]  # the same
    updated_at: Mapped[UpdatedAt]
