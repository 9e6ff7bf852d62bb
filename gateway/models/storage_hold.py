"""Room of a tenant's storage, and one of its versions, that an adapter on its way in has been promised."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef


class StorageHold(Base):
    __tablename__ = "storage_holds"
    __table_args__ = (
        CheckConstraint("num_bytes >= 0", name="storage_holds_bytes"),
        Index("storage_holds_tenant", "tenant_id"),
        Index("storage_holds_place", "place"),
        Index("storage_holds_expiry", "expires_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[TenantRef]
    place: Mapped[str]  # its directory on the spool, which is locked as long as its worker lives
    num_bytes: Mapped[int]
    makes_version: Mapped[bool] = mapped_column(server_default=text("false"))  # past its proof
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime]  # of one whose machine is gone
