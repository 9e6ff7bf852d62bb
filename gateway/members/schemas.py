"""Wire types of members. A token appears in `TokenCreated` only."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.actions import TENANT, Call, allowed
from gateway.admin_auth.passwords import MAX_CHARACTERS, MIN_CHARACTERS
from gateway.members.repository import Found
from gateway.models import AdminToken
from gateway.paging import Page
from gateway.principal import Role

MAX_MEMBERS = 1_000  # of a tenant
MAX_TOKENS = 20  # live ones of a member

Email = Annotated[
    str, Meta(min_length=3, max_length=254, pattern=r"^[^@\s\x00-\x1f\x7f]+@[^@\s\x00-\x1f\x7f]+$")
]
MemberRole = Literal["tenant_admin", "developer", "billing", "viewer"]
Moment = Annotated[datetime, Meta(tz=True)]


class MemberCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    email: Email
    role: MemberRole


class MemberPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: MemberRole

    @staticmethod
    def fields_of(found: Found) -> dict[str, Any]:
        """What it may change, as it is."""
        return {"role": found.member.role}


class RoleOut(msgspec.Struct, frozen=True):
    """One that a member can have, and what it may do."""

    role: MemberRole
    what: str


ROLES: Final = [
    RoleOut("tenant_admin", "all of the tenant: members, keys, webhooks, purges"),
    RoleOut("developer", "keys, uploads, aliases and rollouts; looks at usage and requests"),
    RoleOut("billing", "looks at usage, statements and exports"),
    RoleOut("viewer", "looks at adapters, limits, requests and usage; changes nothing"),
]

MemberAction = Literal["change", "remove", "set_password", "list_tokens", "create_token"]
_MEMBER = f"{TENANT}/members/{{member_id}}"
ACTIONS: Final[Mapping[MemberAction, Call]] = {
    "change": Call("PATCH", _MEMBER),
    "remove": Call("DELETE", _MEMBER),
    "set_password": Call("PUT", f"{_MEMBER}/password"),
    "list_tokens": Call("GET", f"{_MEMBER}/tokens"),
    "create_token": Call("POST", f"{_MEMBER}/tokens"),
}


class MemberOut(msgspec.Struct, frozen=True):
    """`can`: what whoever asks may do with it."""

    id: UUID  # of the membership: that of the account would tell who else has it
    tenant: UUID
    email: str
    role: str
    created_at: datetime
    updated_at: datetime
    can: list[MemberAction]

    @classmethod
    def of(cls, found: Found, role: Role | None) -> MemberOut:
        row, can = found.member, allowed(ACTIONS, role)
        return cls(row.id, row.tenant_id, found.email, row.role, row.created_at, row.updated_at, can)


class MemberPage(Page[MemberOut], frozen=True, kw_only=True):
    """`roles`: all that a member of any tenant can have."""

    data: list[MemberOut]
    roles: list[RoleOut]


class MemberDeleted(msgspec.Struct, frozen=True):
    id: UUID
    deleted: bool = True


class PasswordPut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    password: Annotated[str, Meta(min_length=MIN_CHARACTERS, max_length=MAX_CHARACTERS)]


class TokenCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    expires_at: Moment | None = None


TokenAction = Literal["revoke"]
TOKEN_ACTIONS: Final[Mapping[TokenAction, Call]] = {
    "revoke": Call("DELETE", f"{_MEMBER}/tokens/{{token_id}}"),
}


class TokenOut(msgspec.Struct, frozen=True):
    """`can`: what whoever asks may do with it."""

    id: str  # the public part
    name: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    can: list[TokenAction]

    @classmethod
    def of(cls, token: AdminToken, role: Role | None) -> TokenOut:
        can = allowed(TOKEN_ACTIONS, role, without=() if token.revoked_at is None else TOKEN_ACTIONS)
        return cls(token.token_id, token.name, token.created_at, token.expires_at, token.revoked_at, can)


class TokenCreated(msgspec.Struct, frozen=True):
    token: TokenOut
    secret: str  # shown this once
