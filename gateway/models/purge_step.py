"""One kind of things that a purge deletes: what was there before, and whether it is gone."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, func
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class PurgeStep(Base):
    __tablename__ = "purge_steps"

    offboarding_id: Mapped[UUID] = mapped_column(ForeignKey("offboardings.id"), primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    found: Mapped[int]
    digest: Mapped[str]  # SHA-256 of the names of all that was found, sorted, a line each
    listed_at: Mapped[datetime] = mapped_column(server_default=func.now())
    done_at: Mapped[datetime | None]
