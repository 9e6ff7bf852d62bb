"""Who an account is at an OpenID provider."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class AdminIdentity(Base):
    __tablename__ = "admin_identities"
    __table_args__ = (Index("admin_identities_admin", "admin_id"),)

    issuer: Mapped[str] = mapped_column(primary_key=True)
    subject: Mapped[str] = mapped_column(primary_key=True)  # the provider's own id of the person
    admin_id: Mapped[UUID] = mapped_column(ForeignKey("admins.id", ondelete="CASCADE"))
    created_at: Mapped[CreatedAt]
