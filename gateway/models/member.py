"""An account's part in a tenant. Operators need none: they are platform-wide."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef, UpdatedAt


class Member(Base):
    __tablename__ = "members"
    __table_args__ = (
        CheckConstraint("role in ('tenant_admin', 'developer', 'billing', 'viewer')", name="members_role"),
        UniqueConstraint("tenant_id", "admin_id", name="members_once"),
        Index("members_admin", "admin_id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[TenantRef]
    admin_id: Mapped[UUID] = mapped_column(ForeignKey("admins.id"))
    role: Mapped[str]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
