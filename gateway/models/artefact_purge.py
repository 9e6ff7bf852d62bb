"""The end of an artefact's bytes: under way, or how it went. `artefact_purge_replicas` has it by replica."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class ArtefactPurge(Base):
    __tablename__ = "artefact_purges"
    __table_args__ = (Index("artefact_purges_open", "tried_at", postgresql_where=text("ended_at IS NULL")),)

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    artefact: Mapped[str] = mapped_column(primary_key=True)
    asked_by: Mapped[str]  # as in the audit log; "system" = its retention is over
    asked_at: Mapped[datetime] = mapped_column(server_default=func.now())
    tried_at: Mapped[datetime | None]  # least recently tried goes first
    object_gone_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
