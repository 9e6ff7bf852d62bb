"""One look at the whole object store: asked for by an operator, made by control's leader."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, func
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class CheckState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class StoreCheck(Base):
    __tablename__ = "store_checks"
    __table_args__ = (
        CheckConstraint("depth in ('listed', 'sampled', 'full')", name="store_checks_depth"),
        CheckConstraint("state in ('waiting', 'running', 'done', 'failed')", name="store_checks_state"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    repair: Mapped[bool]
    depth: Mapped[str]
    state: Mapped[str]
    asked_by: Mapped[str]
    asked_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    found: Mapped[dict[str, Any] | None]
    error: Mapped[str | None]  # why it failed
