"""Other weights of a base that are to take over from those that serve it now."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy import CheckConstraint, ForeignKey, func
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base


class UpgradeState(StrEnum):
    PROVING = "proving"  # old and new side by side
    FINISHED = "finished"  # only the new ones serve
    ABANDONED = "abandoned"  # only the old ones do


class BaseUpgrade(Base):
    __tablename__ = "base_upgrades"
    __table_args__ = (
        CheckConstraint("state in ('proving', 'finished', 'abandoned')", name="base_upgrades_state"),
    )

    base_id: Mapped[str] = mapped_column(ForeignKey("bases.base_id"), primary_key=True)
    base_digest: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    ended_at: Mapped[datetime | None]
