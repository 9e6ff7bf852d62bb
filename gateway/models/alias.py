"""A moving name for a version of an adapter, or for several by weight (`live` is what the bare name answers
with)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKeyConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, UpdatedAt


class Alias(Base):
    __tablename__ = "aliases"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        ForeignKeyConstraint(
            ["adapter_id", "version"], ["adapter_versions.adapter_id", "adapter_versions.number"]
        ),
    )

    adapter_id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    version: Mapped[int]  # with a spread: the one that most of it goes to
    # `gateway/aliases/spread.py`; null = all to `version`
    spread: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    # moves with each change, by a trigger
    revision: Mapped[int] = mapped_column(server_default=text("nextval('alias_revisions')"))
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
