"""A proof that is to do. Gone once there is a verdict, or its version was retired."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef


class ProofTask(Base):
    __tablename__ = "proof_tasks"
    __table_args__ = (Index("proof_tasks_due", "not_before"),)

    version_id: Mapped[UUID] = mapped_column(ForeignKey("adapter_versions.id"), primary_key=True)
    base_digest: Mapped[str] = mapped_column(primary_key=True, server_default="")  # '' = any that may serve
    tenant_id: Mapped[TenantRef]
    longest: Mapped[bool] = mapped_column(server_default=text("false"))
    priority: Mapped[int] = mapped_column(server_default="0")  # among its tenant's, the highest first
    holder: Mapped[UUID | None]  # who proves it, until `held_until`
    held_until: Mapped[datetime | None]
    not_before: Mapped[datetime] = mapped_column(server_default=func.now())
    tries: Mapped[int] = mapped_column(server_default="0")  # that came to no verdict
    reason: Mapped[str | None]  # of the last of them
    created_at: Mapped[CreatedAt]
