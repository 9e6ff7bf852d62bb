"""Wire types of API keys. The secret appears in `KeyCreated` only."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.models import ApiKey
from gateway.paging import Page
from gateway.principal import Scope

Limit = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Moment = Annotated[datetime, Meta(tz=True)]
ModelPattern = Annotated[str, Meta(min_length=1, max_length=192)]


class KeyCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=8)] = msgspec.field(
        default_factory=lambda: [Scope.INFERENCE]
    )
    allowed_models: Annotated[list[ModelPattern], Meta(min_length=1, max_length=100)] | None = None
    expires_at: Moment | None = None
    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    max_parallel: Limit | None = None


class KeyOut(msgspec.Struct, frozen=True):
    id: str  # the public part
    tenant: UUID
    name: str
    scopes: list[Scope]
    allowed_models: list[str] | None
    service_class: str
    requests_per_minute: int | None
    tokens_per_minute: int | None
    max_parallel: int | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    @classmethod
    def of(cls, key: ApiKey) -> KeyOut:
        return cls(
            id=key.key_id,
            tenant=key.tenant_id,
            name=key.name,
            scopes=[Scope(scope) for scope in key.scopes],
            allowed_models=key.allowed_models,
            service_class=key.service_class,
            requests_per_minute=key.requests_per_minute,
            tokens_per_minute=key.tokens_per_minute,
            max_parallel=key.max_parallel,
            created_at=key.created_at,
            expires_at=key.expires_at,
            revoked_at=key.revoked_at,
            last_used_at=key.last_used_at,
        )


class KeyCreated(msgspec.Struct, frozen=True):
    key: KeyOut
    secret: str  # the whole key, shown this once


class KeyList(Page[KeyOut], frozen=True, kw_only=True):
    data: list[KeyOut]
