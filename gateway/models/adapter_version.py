"""One uploaded set of weights. Its artefact id is what store, engine and metrics know."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class VersionState(StrEnum):
    PENDING = "pending"  # stored, not yet proved
    READY = "ready"  # may serve
    REFUSED = "refused"  # a later proof failed
    RETIRED = "retired"  # deleted by its owner; the row stays, because the ledger points at it


class AdapterVersion(Base):
    __tablename__ = "adapter_versions"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        UniqueConstraint("adapter_id", "number", name="adapter_versions_number"),
        CheckConstraint("state in ('pending', 'ready', 'refused', 'retired')", name="adapter_versions_state"),
        Index("adapter_versions_artefact", "tenant_id", "artefact"),
        Index("adapter_versions_by_artefact", "artefact"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    adapter_id: Mapped[UUID]
    number: Mapped[int]
    artefact: Mapped[str]
    content_digest: Mapped[str]
    state: Mapped[str]
    manifest: Mapped[dict[str, Any]]
    num_bytes: Mapped[int]
    created_at: Mapped[CreatedAt]
    retired_at: Mapped[datetime | None]
