"""An event's place in its hash chain. Written by a trigger when the event's transaction commits, and by
nothing else."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class AuditLink(Base):
    __tablename__ = "audit_links"
    __table_args__ = (
        CheckConstraint("octet_length(previous) = 32", name="audit_links_previous_check"),
        CheckConstraint("octet_length(hash) = 32", name="audit_links_hash_check"),
    )

    chain: Mapped[UUID] = mapped_column(primary_key=True)  # the tenant; all zeros = the platform
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    event_id: Mapped[UUID] = mapped_column(ForeignKey("audit_events.id"), unique=True)
    previous: Mapped[bytes]  # hash of the link before; zeros for the first
    hash: Mapped[bytes]  # SHA-256 of `previous` and the event's content
