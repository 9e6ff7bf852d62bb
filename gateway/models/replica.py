"""An engine that registered itself, was registered by an operator, or is listed in the settings."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Text, UniqueConstraint, func, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class ReplicaState(StrEnum):
    UP = "up"
    DRAINING = "draining"
    DOWN = "down"  # removed, and known only until its journal was read


class ReplicaSource(StrEnum):
    LISTED = "listed"
    OPERATOR = "operator"
    SELF = "self"


class Replica(Base):
    __tablename__ = "replicas"
    __table_args__ = (
        CheckConstraint("state in ('up', 'draining', 'down')", name="replicas_state"),
        CheckConstraint("source in ('listed', 'operator', 'self')", name="replicas_source"),
        UniqueConstraint("id", name="replicas_id"),
    )

    url: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(server_default=func.gen_random_uuid())
    base_id: Mapped[str] = mapped_column(ForeignKey("bases.base_id"))
    state: Mapped[str]
    source: Mapped[str] = mapped_column(server_default="operator")
    pools: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{general}'"))
    base_digest: Mapped[str | None]  # as it said itself when it registered
    token: Mapped[bytes | None]  # sealed; None = the one that all replicas share
    token_previous: Mapped[bytes | None]  # sealed; still sent while the replica doesn't take the new one
    token_changed_at: Mapped[datetime | None]
    seen_at: Mapped[datetime] = mapped_column(server_default=func.now())  # its last registration
    removed_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
