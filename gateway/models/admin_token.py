"""A bearer token of an operator, for scripts and the command line."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class AdminToken(Base):
    __tablename__ = "admin_tokens"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    admin_id: Mapped[UUID] = mapped_column(ForeignKey("admins.id"))
    token_id: Mapped[str] = mapped_column(unique=True)  # the public part
    secret_hmac: Mapped[bytes]
    pepper_version: Mapped[str]
    name: Mapped[str]
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
