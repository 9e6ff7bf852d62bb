"""What a credential proves. Nothing reads a tenant's data without one of these."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NewType
from uuid import UUID

from gateway.networks import NetworkSet

TenantId = NewType("TenantId", UUID)


class Scope(StrEnum):
    """What an API key may do."""

    INFERENCE = "inference"
    ADAPTERS_READ = "adapters:read"
    ADAPTERS_WRITE = "adapters:write"  # includes adapters:read
    USAGE_READ = "usage:read"
    WEBHOOKS = "webhooks"  # set up where a tenant is told of events
    KEYS_WRITE = "keys:write"  # reading keys too; of those that can do no more than it can itself


@dataclass(frozen=True, slots=True)
class Limits:
    """Continuous-refill buckets and leases. None = no limit at this level."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None  # prompt + generated
    max_parallel: int | None = None  # requests at a time
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None


class Period(StrEnum):
    """Of a budget, in UTC."""

    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Budget:
    """Money that a tenant, or one of its keys, may spend in a period."""

    of_key: bool  # False = of the whole tenant
    period: Period
    amount: int  # units of 10⁻¹² of the currency
    hard: bool  # False: it only tells when it is reached


class CacheMode(StrEnum):
    """Which of a tenant's requests may be answered with an answer that was given before."""

    OFF = "off"
    GREEDY = "greedy"  # temperature 0
    SEEDED = "seeded"  # those, and what names a seed


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """A tenant's response cache, when it is on."""

    mode: CacheMode
    epoch: int  # part of every name in it: when it moves, nothing of before is found
    age_s: int  # most


@dataclass(frozen=True, slots=True)
class Principal:
    """A tenant's API key that was verified: not revoked, not expired, its tenant not suspended."""

    tenant: TenantId
    tenant_name: str
    key_id: str  # the public part of the key
    scopes: frozenset[Scope]
    tenant_limits: Limits
    key_limits: Limits
    salt: str  # tenant's KV salt
    epoch: int  # tenant's epoch when this was read; when `limits.acquire` returns another, resolve again
    service_class: str = "standard"
    share_weight: int = 1  # its tenant's, among the tenants of its class
    allowed_models: frozenset[str] | None = field(default=None)  # None = all the tenant can see
    response_cache: CachePolicy | None = None  # None = off
    allowed_networks: NetworkSet | None = None  # None = from anywhere
    expires_at: datetime | None = None
    budgets: tuple[Budget, ...] = ()

    def may(self, scope: Scope) -> bool:
        return holds(self.scopes, scope)


def holds(scopes: frozenset[Scope], scope: Scope) -> bool:
    """Whether `scope` is among them, or in one of them."""
    return scope in scopes or (scope is Scope.ADAPTERS_READ and Scope.ADAPTERS_WRITE in scopes)


class Role(StrEnum):
    """What an account may do under `/api/v1`; `gateway/roles.py` says which route asks for which."""

    OPERATOR = "operator"  # of the platform: every tenant, and what belongs to none
    TENANT_ADMIN = "tenant_admin"  # the others are of one tenant
    DEVELOPER = "developer"
    BILLING = "billing"
    VIEWER = "viewer"


@dataclass(frozen=True, slots=True)
class Membership:
    tenant: TenantId
    role: Role


@dataclass(frozen=True, slots=True)
class Admin:
    """An account, proved by a session or a bearer token."""

    id: UUID
    email: str
    is_operator: bool
    only: Membership | None = None  # of a token that is good for one tenant, whatever else its account may
    token: str | None = None  # public id of such a token, which others than the account may hold
    granted: tuple[Membership, ...] = ()  # by groups at the provider of this session; goes before memberships
