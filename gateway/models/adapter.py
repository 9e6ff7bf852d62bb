"""A tenant's name for a line of adapter versions over one base."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef


class Adapter(Base):
    __tablename__ = "adapters"
    __table_args__ = (
        UniqueConstraint("tenant_id", "base_id", "name", name="adapters_name"),
        UniqueConstraint("tenant_id", "id", name="adapters_owner"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[TenantRef]
    base_id: Mapped[str] = mapped_column(ForeignKey("bases.base_id"))
    name: Mapped[str]
    last_number: Mapped[int] = mapped_column(server_default="0")  # numbers are never given out twice
    requests_per_minute: Mapped[int | None]
    tokens_per_minute: Mapped[int | None]
    max_parallel: Mapped[int | None]
    input_tokens_per_minute: Mapped[int | None]
    output_tokens_per_minute: Mapped[int | None]
    created_at: Mapped[CreatedAt]
