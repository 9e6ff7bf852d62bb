"""Wire types of tenants. Absent means unchanged, null means no limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.actions import TENANT, Call, allowed
from gateway.models import Lifecycle, Offboarding, OffboardingState, PurgeStep, Tenant, TenantStatus
from gateway.paging import Page
from gateway.principal import Role

TenantName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", description="Lower case, unique.")]
Limit = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Zone = Annotated[
    str, Meta(max_length=64, description="IANA time zone of its usage's days, such as Europe/Vienna.")
]
Weight = Annotated[int, Meta(ge=1, le=100, description="In the queue, beside other tenants' weights.")]


class TenantCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: TenantName
    share_weight: Weight = 1
    requests_per_minute: Limit | None = None
    tokens_per_minute: Limit | None = None
    max_parallel: Limit | None = None
    reporting_zone: Zone | UnsetType = UNSET  # UTC


class TenantPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    status: TenantStatus | UnsetType = UNSET
    share_weight: Weight | UnsetType = UNSET
    requests_per_minute: Limit | UnsetType | None = UNSET
    tokens_per_minute: Limit | UnsetType | None = UNSET
    max_parallel: Limit | UnsetType | None = UNSET
    reporting_zone: Zone | UnsetType = UNSET

    @staticmethod
    def fields_of(tenant: Tenant) -> dict[str, Any]:
        """What it may change, as it is."""
        return {name: getattr(tenant, name) for name in TenantPatch.__struct_fields__}

    def changes(self) -> dict[str, str | int | None]:
        """The columns that were named."""
        named = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in named.items() if value is not UNSET}


Reason = Annotated[str, Meta(max_length=500, description="For the audit log.")]


class Suspension(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Reason = ""


class OffboardingIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`confirm` is the tenant's name, typed."""

    confirm: Annotated[str, Meta(max_length=63)]
    reason: Reason = ""
    grace_h: Annotated[int, Meta(ge=1, le=2_160, description="Until the purge.")] | None = None


class PurgeStepOut(msgspec.Struct, frozen=True):
    """What was found of one kind before anything was deleted; `digest` is the SHA-256 of its names."""

    kind: str
    found: int
    digest: str
    done_at: datetime | None


class OffboardingOut(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    tenant: UUID
    state: OffboardingState
    reason: str
    requested_by: str
    requested_at: datetime
    purge_after: datetime
    ended_by: str | None
    ended_at: datetime | None
    steps: list[PurgeStepOut]
    proof: dict[str, Any] | None
    looked_again_at: datetime | None
    leftovers: dict[str, Any] | None

    @classmethod
    def of(cls, offboarding: Offboarding, steps: Sequence[PurgeStep] = ()) -> OffboardingOut:
        return cls(
            id=offboarding.id,
            tenant=offboarding.tenant_id,
            state=OffboardingState(offboarding.state),
            reason=offboarding.reason,
            requested_by=offboarding.requested_by,
            requested_at=offboarding.requested_at,
            purge_after=offboarding.purge_after,
            ended_by=offboarding.ended_by,
            ended_at=offboarding.ended_at,
            steps=[PurgeStepOut(step.kind, step.found, step.digest, step.done_at) for step in steps],
            proof=offboarding.proof,
            looked_again_at=offboarding.looked_again_at,
            leftovers=offboarding.leftovers,
        )


TenantAction = Literal[
    "change",
    "suspend",
    "resume",
    "offboard",
    "undo_offboarding",
    "read_offboarding",
    "read_retention",
    "change_retention",
    "read_caches",
    "change_caches",
    "drop_caches",
    "read_limits",
    "change_limits",
    "list_keys",
    "create_key",
    "list_members",
    "add_member",
    "list_webhooks",
    "create_webhook",
    "list_models",
    "list_adapters",
    "upload_adapter",
    "read_usage",
    "read_billing",
    "create_export",
    "read_requests",
    "read_audit",
    "export_audit",
]
ACTIONS: Final[Mapping[TenantAction, Call]] = {
    "change": Call("PATCH", TENANT),
    "suspend": Call("POST", f"{TENANT}/suspend"),
    "resume": Call("POST", f"{TENANT}/resume"),
    "offboard": Call("POST", f"{TENANT}/offboarding"),
    "undo_offboarding": Call("DELETE", f"{TENANT}/offboarding"),
    "read_offboarding": Call("GET", f"{TENANT}/offboarding"),
    "read_retention": Call("GET", f"{TENANT}/retention"),
    "change_retention": Call("PATCH", f"{TENANT}/retention"),
    "read_caches": Call("GET", f"{TENANT}/caches"),
    "change_caches": Call("PATCH", f"{TENANT}/caches"),
    "drop_caches": Call("DELETE", f"{TENANT}/caches"),
    "read_limits": Call("GET", f"{TENANT}/limits"),
    "change_limits": Call("PATCH", f"{TENANT}/limits"),
    "list_keys": Call("GET", f"{TENANT}/keys"),
    "create_key": Call("POST", f"{TENANT}/keys"),
    "list_members": Call("GET", f"{TENANT}/members"),
    "add_member": Call("POST", f"{TENANT}/members"),
    "list_webhooks": Call("GET", f"{TENANT}/webhooks"),
    "create_webhook": Call("POST", f"{TENANT}/webhooks"),
    "list_models": Call("GET", f"{TENANT}/models"),
    "list_adapters": Call("GET", f"{TENANT}/adapters"),
    "upload_adapter": Call("POST", f"{TENANT}/adapters/{{name}}/versions"),
    "read_usage": Call("GET", f"{TENANT}/usage"),
    "read_billing": Call("GET", f"{TENANT}/billing/statement"),
    "create_export": Call("POST", f"{TENANT}/billing/exports"),
    "read_requests": Call("GET", f"{TENANT}/requests"),
    "read_audit": Call("GET", f"{TENANT}/audit"),
    "export_audit": Call("GET", f"{TENANT}/audit/export"),
}


def can_with(tenant: Tenant, role: Role | None) -> list[TenantAction]:
    """One that is leaving or gone is only looked at, and may be taken back."""
    without: set[str] = {"resume" if tenant.status == TenantStatus.ACTIVE else "suspend"}
    if tenant.lifecycle != Lifecycle.ACTIVE:
        without |= {name for name, call in ACTIONS.items() if call.changes}
    if tenant.lifecycle == Lifecycle.OFFBOARDING:
        without -= {"undo_offboarding"}
    else:
        without |= {"undo_offboarding"}
    if tenant.lifecycle == Lifecycle.ACTIVE:  # whose last off-boarding, if any, was undone
        without |= {"read_offboarding"}
    return allowed(ACTIONS, role, without=without)


class TenantOut(msgspec.Struct, frozen=True):
    """`can`: what whoever asks may do with it."""

    id: UUID
    name: str
    status: TenantStatus
    lifecycle: Lifecycle
    suspended_for: str | None
    epoch: int
    share_weight: int
    requests_per_minute: int | None
    tokens_per_minute: int | None
    max_parallel: int | None
    reporting_zone: str
    created_at: datetime
    updated_at: datetime
    can: list[TenantAction]

    @classmethod
    def of(cls, tenant: Tenant, role: Role | None) -> TenantOut:
        return cls(
            id=tenant.id,
            name=tenant.name,
            status=TenantStatus(tenant.status),
            lifecycle=Lifecycle(tenant.lifecycle),
            suspended_for=tenant.suspended_for,
            epoch=tenant.epoch,
            share_weight=tenant.share_weight,
            requests_per_minute=tenant.requests_per_minute,
            tokens_per_minute=tenant.tokens_per_minute,
            max_parallel=tenant.max_parallel,
            reporting_zone=tenant.reporting_zone,
            created_at=tenant.created_at,
            updated_at=tenant.updated_at,
            can=can_with(tenant, role),
        )


class TenantPage(Page[TenantOut], frozen=True, kw_only=True):
    data: list[TenantOut]
