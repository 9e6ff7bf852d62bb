"""A tenant: the owner of keys, adapters and usage."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from sqlalchemy import CheckConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from gateway.models.base import Base, CreatedAt, UpdatedAt


class TenantStatus(StrEnum):
    ACTIVE = "active"
    SUSPENDED = "suspended"


class Lifecycle(StrEnum):
    """A tenant that is leaving or gone is suspended too."""

    ACTIVE = "active"
    OFFBOARDING = "offboarding"  # may still be undone, until its purge begins
    PURGED = "purged"


class Tenant(Base):
    __tablename__ = "tenants"
    __table_args__ = (
        CheckConstraint("status in ('active', 'suspended')", name="tenants_status"),
        CheckConstraint("share_weight between 1 and 100", name="tenants_share_weight"),
        CheckConstraint("lifecycle in ('active', 'offboarding', 'purged')", name="tenants_lifecycle"),
        CheckConstraint("response_cache in ('off', 'greedy', 'seeded')", name="tenants_response_cache"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    status: Mapped[str] = mapped_column(server_default=text("'active'"))
    lifecycle: Mapped[str] = mapped_column(server_default=text("'active'"))  # Lifecycle
    suspended_for: Mapped[str | None]  # the operator's reason, while it is suspended
    salt: Mapped[str]  # enters every KV block's name, so that tenants share no cache
    epoch: Mapped[int] = mapped_column(
        server_default=text("1")
    )  # moves when anything cached about the tenant changed
    requests_per_minute: Mapped[int | None]
    tokens_per_minute: Mapped[int | None]
    max_parallel: Mapped[int | None]
    share_weight: Mapped[int] = mapped_column(server_default=text("1"))  # in the queue, beside other tenants
    input_tokens_per_minute: Mapped[int | None]
    output_tokens_per_minute: Mapped[int | None]
    response_cache: Mapped[str] = mapped_column(server_default=text("'off'"))  # CacheMode
    response_cache_age_s: Mapped[int] = mapped_column(server_default=text("3600"))
    cache_epoch: Mapped[int] = mapped_column(server_default=text("1"))  # moves when its caches are dropped
    reporting_zone: Mapped[str] = mapped_column(server_default=text("'UTC'"))  # IANA, of its usage's days
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]
