"""A tenant's leaving: asked for, undone or carried out, with the proof of its purge."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, TenantRef


class OffboardingState(StrEnum):
    WAITING = "waiting"  # until `purge_after`; may be undone
    PURGING = "purging"
    PURGED = "purged"
    UNDONE = "undone"


class Offboarding(Base):
    __tablename__ = "offboardings"
    __table_args__ = (
        CheckConstraint("state in ('waiting', 'purging', 'purged', 'undone')", name="offboardings_state"),
        CheckConstraint("(state = 'purged') = (proof is not null)", name="offboardings_proof"),
        Index(
            "offboardings_open",
            "tenant_id",
            unique=True,
            postgresql_where=text("state in ('waiting', 'purging')"),
        ),
        Index("offboardings_tenant", "tenant_id", "requested_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[TenantRef]
    state: Mapped[str]  # OffboardingState
    requested_by: Mapped[str]
    reason: Mapped[str]
    status_before: Mapped[str]  # what undoing goes back to
    requested_at: Mapped[datetime] = mapped_column(server_default=func.now())
    purge_after: Mapped[datetime]
    ended_by: Mapped[str | None]
    ended_at: Mapped[datetime | None]
    proof: Mapped[dict[str, Any] | None]
    looked_again_at: Mapped[datetime | None]  # a day after the purge
    leftovers: Mapped[dict[str, Any] | None]  # what that look found and deleted, by kind
