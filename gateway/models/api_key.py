"""A credential of a tenant. The secret itself is nowhere: only its HMAC under a pepper."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import Text

from gateway.models.base import Base, CreatedAt, TenantRef


class ApiKey(Base):
    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint(
            "service_class in ('interactive', 'standard', 'batch')", name="api_keys_service_class"
        ),
        CheckConstraint("octet_length(secret_hmac) = 32", name="api_keys_secret_hmac"),
        CheckConstraint("octet_length(previous_hmac) = 32", name="api_keys_previous_hmac"),
        CheckConstraint(
            "num_nulls(previous_hmac, previous_pepper_version, previous_until) in (0, 3)",
            name="api_keys_previous",
        ),
        Index("api_keys_tenant", "tenant_id", "created_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[TenantRef]
    key_id: Mapped[str] = mapped_column(unique=True)  # the public part
    name: Mapped[str]
    secret_hmac: Mapped[bytes]
    pepper_version: Mapped[str]  # fingerprint of the pepper that made `secret_hmac`
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    service_class: Mapped[str] = mapped_column(server_default=text("'standard'"))
    allowed_models: Mapped[list[str] | None] = mapped_column(ARRAY(Text))  # null = all the tenant can see
    allowed_networks: Mapped[list[str] | None] = mapped_column(ARRAY(Text))  # null = from anywhere
    requests_per_minute: Mapped[int | None]
    tokens_per_minute: Mapped[int | None]
    max_parallel: Mapped[int | None]
    input_tokens_per_minute: Mapped[int | None]
    output_tokens_per_minute: Mapped[int | None]
    created_at: Mapped[CreatedAt]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]  # coarse: written at most once a minute
    rotated_at: Mapped[datetime | None]
    previous_hmac: Mapped[bytes | None]  # of the secret before the last rotation, good until
    previous_pepper_version: Mapped[str | None]
    previous_until: Mapped[datetime | None]
    previous_used_at: Mapped[datetime | None]  # coarse too; since the rotation
