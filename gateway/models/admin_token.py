"""A bearer token of an account, for scripts and the command line."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class AdminToken(Base):
    __tablename__ = "admin_tokens"
    __table_args__ = (Index("admin_tokens_member", "member_id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    admin_id: Mapped[UUID] = mapped_column(ForeignKey("admins.id"))
    member_id: Mapped[UUID | None] = mapped_column(ForeignKey("members.id", ondelete="CASCADE"))
    """Good for this membership only, with its role; null = for all that the account may."""
    token_id: Mapped[str] = mapped_column(unique=True)  # the public part
    secret_hmac: Mapped[bytes]
    pepper_version: Mapped[str]
    name: Mapped[str]
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
