"""A file that comes in over several requests (tus), until it has become part of a version or is given up."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, func
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef


class Upload(Base):
    __tablename__ = "uploads"
    __table_args__ = (
        CheckConstraint("received BETWEEN 0 AND num_bytes", name="uploads_received"),
        CheckConstraint("(adapter IS NULL) = (version IS NULL)", name="uploads_taken"),
        Index("uploads_tenant", "tenant_id", "id"),
        Index("uploads_expiry", "expires_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)  # UUIDv7; also the name of its file on the spool
    tenant_id: Mapped[TenantRef]
    file: Mapped[str]  # what it is: adapter_config.json, …, or the name of a zip
    num_bytes: Mapped[int]  # announced; all of them count against the tenant's storage from the start
    received: Mapped[int]  # of these, so many lie durably on the spool
    told: Mapped[str]  # Upload-Metadata as the client wrote it
    sha256: Mapped[str | None]  # of the whole file, as the client announced it
    writer: Mapped[UUID | None]  # the request that wrote last: an earlier one that wakes up must not go on
    adapter: Mapped[str | None]  # taken: the adapter, and the version of it, that it has become part of
    version: Mapped[int | None]
    created_at: Mapped[CreatedAt]
    touched_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime]
