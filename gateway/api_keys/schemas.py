"""Wire types of API keys. A secret appears in `KeyCreated` only. In a patch, absent means unchanged and null
means without bound."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.actions import TENANT, Call, allowed
from gateway.api_keys.networks import MAX_CHARACTERS, MAX_NETWORKS
from gateway.models import ApiKey
from gateway.paging import Page
from gateway.principal import Role, Scope

DEFAULT_OVERLAP_S = 24 * 3600
MAX_OVERLAP_S = 30 * 24 * 3600

Name = Annotated[str, Meta(min_length=1, max_length=100)]
Limit = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Moment = Annotated[datetime, Meta(tz=True)]
Scopes = Annotated[list[Scope], Meta(min_length=1, max_length=8)]
Models = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=192)]],
    Meta(
        min_length=1, max_length=100, description="Names of adapters, owner/name of others', or the base's."
    ),
]
Networks = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=MAX_CHARACTERS)]],
    Meta(min_length=1, max_length=MAX_NETWORKS, description="192.0.2.1, 192.0.2.0/24, 2001:db8::/32."),
]
ServiceClass = Literal["interactive", "standard", "batch"]


class KeyCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    scopes: Scopes = msgspec.field(default_factory=lambda: [Scope.INFERENCE])
    allowed_models: Models | None = None
    allowed_networks: Networks | None = None
    service_class: ServiceClass = "standard"
    expires_at: Moment | None = None
    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    max_parallel: Limit | None = None


class KeyPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name | UnsetType = UNSET
    scopes: Scopes | UnsetType = UNSET
    allowed_models: Models | UnsetType | None = UNSET
    allowed_networks: Networks | UnsetType | None = UNSET
    service_class: ServiceClass | UnsetType = UNSET
    expires_at: Moment | UnsetType | None = UNSET
    requests_per_minute: Limit | UnsetType | None = UNSET
    tokens_per_minute: Limit | UnsetType | None = UNSET
    max_parallel: Limit | UnsetType | None = UNSET

    @staticmethod
    def fields_of(key: ApiKey) -> dict[str, Any]:
        """What it may change, as it is."""
        return {name: getattr(key, name) for name in KeyPatch.__struct_fields__}

    def changes(self) -> dict[str, Any]:
        """The columns that were named."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in named.items() if value is not UNSET}


class KeyRotate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    overlap_s: Annotated[
        int,
        Meta(ge=0, le=MAX_OVERLAP_S, description="How long the old secret goes on; 0 ends it now."),
    ] = DEFAULT_OVERLAP_S


KeyAction = Literal["change", "rotate", "end_previous_secret", "revoke", "read_limits", "change_limits"]
_KEY = f"{TENANT}/keys/{{key_id}}"
ACTIONS: Final[Mapping[KeyAction, Call]] = {
    "change": Call("PATCH", _KEY),
    "rotate": Call("POST", f"{_KEY}/rotate"),
    "end_previous_secret": Call("DELETE", f"{_KEY}/previous-secret"),
    "revoke": Call("DELETE", _KEY),
    "read_limits": Call("GET", f"{_KEY}/limits"),
    "change_limits": Call("PATCH", f"{_KEY}/limits"),
}


def can_with(key: ApiKey, role: Role | None) -> list[KeyAction]:
    """One that is revoked is only looked at; limits are an account's business, never a key's."""
    without = {"read_limits", "change_limits"} if role is None else set[str]()
    if key.revoked_at is not None:
        without |= {name for name, call in ACTIONS.items() if call.changes}
    if key.previous_until is None or key.previous_until <= datetime.now(UTC):
        without |= {"end_previous_secret"}
    return allowed(ACTIONS, role, without=without)


class KeyOut(msgspec.Struct, frozen=True):
    """`can`: what whoever asks may do with it."""

    id: str  # the public part
    tenant: UUID
    name: str
    scopes: list[str]
    allowed_models: list[str] | None
    allowed_networks: list[str] | None
    service_class: str
    requests_per_minute: int | None
    tokens_per_minute: int | None
    max_parallel: int | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    rotated_at: datetime | None
    previous_until: datetime | None  # when the secret before the last rotation ends, or ended
    previous_used_at: datetime | None  # its last use since then: null = nobody waits for it any more
    can: list[KeyAction]

    @classmethod
    def of(cls, key: ApiKey, role: Role | None) -> KeyOut:
        return cls(
            id=key.key_id,
            tenant=key.tenant_id,
            name=key.name,
            scopes=list(key.scopes),
            allowed_models=key.allowed_models,
            allowed_networks=key.allowed_networks,
            service_class=key.service_class,
            requests_per_minute=key.requests_per_minute,
            tokens_per_minute=key.tokens_per_minute,
            max_parallel=key.max_parallel,
            created_at=key.created_at,
            expires_at=key.expires_at,
            revoked_at=key.revoked_at,
            last_used_at=key.last_used_at,
            rotated_at=key.rotated_at,
            previous_until=key.previous_until,
            previous_used_at=key.previous_used_at,
            can=can_with(key, role),
        )


class KeyCreated(msgspec.Struct, frozen=True):
    key: KeyOut
    secret: str  # the whole key, shown this once


class KeyList(Page[KeyOut], frozen=True, kw_only=True):
    data: list[KeyOut]
