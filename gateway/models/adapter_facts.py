"""What is known of a version from its files alone, and the prompts that it has to answer as asked."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef


class AdapterFacts(Base):
    __tablename__ = "adapter_facts"

    version_id: Mapped[UUID] = mapped_column(ForeignKey("adapter_versions.id"), primary_key=True)
    tenant_id: Mapped[TenantRef]
    facts: Mapped[dict[str, Any]]
    acceptance: Mapped[dict[str, Any] | None]
    created_at: Mapped[CreatedAt]
