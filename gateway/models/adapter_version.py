"""One uploaded set of weights. Its artefact id is what store, engine and metrics know."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Index, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt


class VersionState(StrEnum):
    UPLOADED = "uploaded"  # stored; waits for a proof on a replica
    PROVING = "proving"  # a replica is at it
    READY = "ready"  # may serve
    REJECTED = "rejected"  # a proof said no
    RETIRED = "retired"  # deleted by its owner; the row stays, because the ledger points at it


BEFORE_PROOFS = ("pending", "refused")
"""What the release before called `uploaded` and `rejected`; it never wrote them, and still may."""


class AdapterVersion(Base):
    __tablename__ = "adapter_versions"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["adapters.tenant_id", "adapters.id"]),
        UniqueConstraint("adapter_id", "number", name="adapter_versions_number"),
        CheckConstraint(
            f"state in {(*BEFORE_PROOFS, *(state.value for state in VersionState))}",
            name="adapter_versions_state",
        ),
        Index("adapter_versions_artefact", "tenant_id", "artefact"),
        Index(
            "adapter_versions_purging",
            "purges_at",
            postgresql_where=text("purges_at IS NOT NULL AND purged_at IS NULL"),
        ),
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
    moves_alias: Mapped[str | None]  # the alias that points to it once it is ready
    reason: Mapped[str | None]  # why it was rejected
    ready_at: Mapped[datetime | None]  # when it first was; one that never was keeps no bytes once rejected
    purges_at: Mapped[datetime | None]  # until when a retired one can be restored; absent: it can't
    purged_at: Mapped[datetime | None]  # its bytes are gone, or stay for another version with the same
    state_before: Mapped[str | None]  # it was retired
    retired_aliases: Mapped[list[str] | None] = mapped_column(ARRAY(Text))  # which pointed to it then
    lost_at: Mapped[datetime | None]  # the store has lost its object: it does not resolve
