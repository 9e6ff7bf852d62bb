"""The last verdict of a replica on a version, for each set of weights of its base."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, func, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, TenantRef


class AdapterProof(Base):
    __tablename__ = "adapter_proofs"

    version_id: Mapped[UUID] = mapped_column(ForeignKey("adapter_versions.id"), primary_key=True)
    base_digest: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[TenantRef]
    passed: Mapped[bool]
    longest: Mapped[bool] = mapped_column(server_default=text("false"))  # at the longest context, too
    reason: Mapped[str | None]  # why it did not pass
    report: Mapped[dict[str, Any]]
    proved_at: Mapped[datetime] = mapped_column(server_default=func.now())
