"""Wire types of logging in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.actions import Call, of_account
from gateway.admin_auth.passwords import MAX_CHARACTERS, MIN_CHARACTERS
from gateway.admin_auth.sessions import Session


class LogIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    email: Annotated[str, Meta(min_length=3, max_length=254)]
    password: Annotated[str, Meta(min_length=1, max_length=256)]


class PasswordChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    current: Annotated[str, Meta(min_length=1, max_length=MAX_CHARACTERS)]
    new: Annotated[str, Meta(min_length=MIN_CHARACTERS, max_length=MAX_CHARACTERS)]


AccountAction = Literal[
    "list_tenants",
    "create_tenant",
    "follow_changes",
    "list_replicas",
    "read_placement",
    "read_pool_rules",
    "list_bases",
    "create_replica",
    "read_audit",
    "export_audit",
    "read_metrics",
    "read_attention",
    "find_request",
    "list_price_books",
    "create_price_book",
    "rerate_usage",
    "list_billing_periods",
    "list_billing_exports",
    "read_store",
    "check_store",
    "create_billing_export",
    "change_password",
]
ACTIONS: Final[Mapping[AccountAction, Call]] = {
    "list_tenants": Call("GET", "/api/v1/tenants"),
    "create_tenant": Call("POST", "/api/v1/tenants"),
    "follow_changes": Call("GET", "/api/v1/changes"),
    "list_replicas": Call("GET", "/api/v1/replicas"),
    "read_placement": Call("GET", "/api/v1/placement"),
    "read_pool_rules": Call("GET", "/api/v1/pool-rules"),
    "list_bases": Call("GET", "/api/v1/bases"),
    "create_replica": Call("POST", "/api/v1/replicas"),
    "read_audit": Call("GET", "/api/v1/audit"),
    "export_audit": Call("GET", "/api/v1/audit/export"),
    "read_metrics": Call("GET", "/api/v1/metrics/requests"),
    "read_attention": Call("GET", "/api/v1/attention"),
    "find_request": Call("GET", "/api/v1/requests/{request_id}"),
    "list_price_books": Call("GET", "/api/v1/price-books"),
    "create_price_book": Call("POST", "/api/v1/price-books"),
    "rerate_usage": Call("POST", "/api/v1/price-books/{version}/re-ratings"),
    "list_billing_periods": Call("GET", "/api/v1/billing/periods"),
    "list_billing_exports": Call("GET", "/api/v1/billing/exports"),
    "read_store": Call("GET", "/api/v1/store"),
    "check_store": Call("POST", "/api/v1/store/fsck"),
    "create_billing_export": Call("POST", "/api/v1/billing/exports"),
    "change_password": Call("PUT", "/api/v1/session/password"),
}


class AdminOut(msgspec.Struct, frozen=True):
    id: UUID
    email: str
    is_operator: bool  # else a member of the tenants that it can list


class SessionOut(msgspec.Struct, frozen=True, kw_only=True):
    """`can`: what the account may do that is of no tenant; what it may in one, that tenant says. While
    `must_change_password`, that is all that the API lets it do."""

    admin: AdminOut
    csrf_token: str  # to be sent back as `x-csrf-token` with everything that changes something
    ends_at: datetime  # at the latest
    provider: str | None  # of OpenID Connect; null = a password
    must_change_password: bool
    can: list[AccountAction]

    @classmethod
    def of(cls, session: Session) -> SessionOut:
        admin = session.admin
        can = of_account(ACTIONS, admin)
        if session.must_change_password:
            can = ["change_password"]
        elif session.provider is not None:
            can.remove("change_password")
        return cls(
            admin=AdminOut(admin.id, admin.email, admin.is_operator),
            csrf_token=session.csrf,
            ends_at=datetime.fromtimestamp(session.ends_at, UTC),
            provider=session.provider,
            must_change_password=session.must_change_password,
            can=can,
        )
