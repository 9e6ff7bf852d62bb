"""Wire types of tenants. Absent means unchanged, null means no limit."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.models import Tenant, TenantStatus
from gateway.paging import Page

TenantName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", description="Lower case, unique.")]
Limit = Annotated[int, Meta(ge=1, le=1_000_000_000)]


class TenantCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: TenantName
    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    max_parallel: Limit | None = None


class TenantPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: TenantStatus | UnsetType = UNSET
    requests_per_minute: Limit | UnsetType | None = UNSET
    tokens_per_minute: Limit | UnsetType | None = UNSET
    max_parallel: Limit | UnsetType | None = UNSET

    def changes(self) -> dict[str, str | int | None]:
        """The columns that were named."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in named.items() if value is not UNSET}


class TenantOut(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    status: TenantStatus
    epoch: int
    requests_per_minute: int | None
    tokens_per_minute: int | None
    max_parallel: int | None
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, tenant: Tenant) -> TenantOut:
        return cls(
            id=tenant.id,
            name=tenant.name,
            status=TenantStatus(tenant.status),
            epoch=tenant.epoch,
            requests_per_minute=tenant.requests_per_minute,
            tokens_per_minute=tenant.tokens_per_minute,
            max_parallel=tenant.max_parallel,
            created_at=tenant.created_at,
            updated_at=tenant.updated_at,
        )


class TenantPage(Page[TenantOut], frozen=True, kw_only=True):
    data: list[TenantOut]
