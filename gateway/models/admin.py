"""An operator of the platform."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class Admin(Base):
    __tablename__ = "admins"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(unique=True)  # lower case
    password_hash: Mapped[str]  # argon2id
    created_at: Mapped[CreatedAt]
    disabled_at: Mapped[datetime | None]
