"""How far the reconciler has read each engine's journal."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, UpdatedAt


class JournalCursor(Base):
    __tablename__ = "journal_cursors"

    journal_id: Mapped[str] = mapped_column(primary_key=True)
    n: Mapped[int]  # the last line that was read
    updated_at: Mapped[UpdatedAt]
