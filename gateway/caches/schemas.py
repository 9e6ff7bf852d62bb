"""Wire types of a tenant's caches."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.caches.policy import MAX_AGE_S
from gateway.models import Tenant
from gateway.principal import CacheMode

Age = Annotated[int, Meta(ge=1, le=MAX_AGE_S, description="Seconds that an answer is kept at most.")]


class CachesPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Absent means unchanged."""

    response_cache: CacheMode | UnsetType = UNSET
    response_cache_age_s: Age | UnsetType = UNSET

    @staticmethod
    def fields_of(tenant: Tenant) -> dict[str, Any]:
        """What it may change, as it is."""
        return {name: getattr(tenant, name) for name in CachesPatch.__struct_fields__}

    def changes(self) -> dict[str, str | int | None]:
        """The columns that were named."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in named.items() if value is not UNSET}


class CachesOut(msgspec.Struct, frozen=True):
    tenant: UUID
    response_cache: CacheMode
    response_cache_age_s: int
    cache_epoch: int

    @classmethod
    def of(cls, tenant: Tenant) -> CachesOut:
        return cls(
            tenant=tenant.id,
            response_cache=CacheMode(tenant.response_cache),
            response_cache_age_s=tenant.response_cache_age_s,
            cache_epoch=tenant.cache_epoch,
        )


class CachesDropped(msgspec.Struct, frozen=True):
    """`answers`: cached ones that were deleted. What the replicas still hold of prompts no request can
    find."""

    cache_epoch: int
    answers: int
