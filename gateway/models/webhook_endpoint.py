"""Where a tenant wants to be told. Its URL may itself be a secret, so it is sealed as its keys are."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Index, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, TenantRef, UpdatedAt


class WebhookEndpoint(Base):
    __tablename__ = "webhook_endpoints"
    __table_args__ = (Index("webhook_endpoints_tenant", "tenant_id", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[TenantRef]
    host: Mapped[str]  # of the URL: all that logs and the audit log tell of it
    url: Mapped[bytes]  # sealed
    description: Mapped[str] = mapped_column(server_default=text("''"))
    kinds: Mapped[list[str] | None] = mapped_column(ARRAY(TEXT))  # null = all, also those to come
    secret: Mapped[bytes]  # sealed
    previous_secret: Mapped[bytes | None]  # sealed; signs too until `previous_until`
    previous_until: Mapped[datetime | None]
    status: Mapped[str] = mapped_column(server_default=text("'active'"))  # active | disabled
    disabled_reason: Mapped[str | None]
    failing_since: Mapped[datetime | None]  # null = its last answer was good
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
