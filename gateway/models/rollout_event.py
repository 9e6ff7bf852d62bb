"""One thing that happened on a rollout's way, with the figures it was decided on."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class RolloutEvent(Base):
    __tablename__ = "rollout_events"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "rollout_id"], ["rollouts.tenant_id", "rollouts.id"], ondelete="CASCADE"
        ),
        Index("rollout_events_of", "tenant_id", "rollout_id", "id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)  # UUIDv7: also their order
    tenant_id: Mapped[UUID]
    rollout_id: Mapped[UUID]
    kind: Mapped[str]
    actor: Mapped[str]
    details: Mapped[dict[str, Any]]
    created_at: Mapped[CreatedAt]
