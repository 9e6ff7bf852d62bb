"""How far the purge of an artefact is at one replica."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class ReplicaPurge(StrEnum):
    HELD = "held"  # something runs on it there, or the replica can't do it now
    AWAY = "away"  # can't be reached: it serves nothing until it has purged
    PURGED = "purged"  # and asked afterwards whether anything is left
    UNVERIFIED = "unverified"  # of an engine that can forget, but can't tell what its disk holds
    GONE = "gone"  # was removed before it could be asked; purged if it ever comes back


class ArtefactPurgeReplica(Base):
    __tablename__ = "artefact_purge_replicas"
    __table_args__ = (
        ForeignKeyConstraint(
            ["tenant_id", "artefact"],
            ["artefact_purges.tenant_id", "artefact_purges.artefact"],
            ondelete="CASCADE",
        ),
        CheckConstraint(
            "state in ('held', 'away', 'purged', 'unverified', 'gone')", name="artefact_purge_replicas_state"
        ),
        Index("artefact_purge_replicas_owing", "url", postgresql_where=text("state IN ('away', 'gone')")),
    )

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    artefact: Mapped[str] = mapped_column(primary_key=True)
    url: Mapped[str] = mapped_column(primary_key=True)
    replica_id: Mapped[UUID]
    state: Mapped[str]
    reason: Mapped[str | None]
    changed_at: Mapped[datetime] = mapped_column(server_default=func.now())
