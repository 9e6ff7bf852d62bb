"""How far each journal is in the ledger: what "complete until" is computed from."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, UpdatedAt


class UsageDrain(Base):
    __tablename__ = "usage_drains"

    source: Mapped[str] = mapped_column(primary_key=True)  # a worker's id, or an engine's journal
    kind: Mapped[str]  # worker | engine
    folder: Mapped[str | None]  # id of the journal folder; null = an engine's
    complete_until: Mapped[datetime]
    updated_at: Mapped[UpdatedAt]
