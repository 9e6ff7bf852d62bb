"""An engine that registered itself or was listed."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, func
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class ReplicaState(StrEnum):
    UP = "up"
    DRAINING = "draining"
    DOWN = "down"


class Replica(Base):
    __tablename__ = "replicas"
    __table_args__ = (CheckConstraint("state in ('up', 'draining', 'down')", name="replicas_state"),)

    url: Mapped[str] = mapped_column(primary_key=True)
    base_id: Mapped[str] = mapped_column(ForeignKey("bases.base_id"))
    state: Mapped[str]
    seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    created_at: Mapped[CreatedAt]
