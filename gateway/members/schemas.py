"""Wire types of members. A token appears in `TokenCreated` only."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.admin_auth.passwords import MAX_CHARACTERS, MIN_CHARACTERS
from gateway.members.repository import Found
from gateway.models import AdminToken

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


class MemberOut(msgspec.Struct, frozen=True):
    id: UUID  # of the membership: that of the account would tell who else has it
    tenant: UUID
    email: str
    role: str
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, found: Found) -> MemberOut:
        row = found.member
        return cls(row.id, row.tenant_id, found.email, row.role, row.created_at, row.updated_at)


class MemberDeleted(msgspec.Struct, frozen=True):
    id: UUID
    deleted: bool = True


class PasswordPut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    password: Annotated[str, Meta(min_length=MIN_CHARACTERS, max_length=MAX_CHARACTERS)]


class TokenCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]
    expires_at: Moment | None = None


class TokenOut(msgspec.Struct, frozen=True):
    id: str  # the public part
    name: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, token: AdminToken) -> TokenOut:
        return cls(token.token_id, token.name, token.created_at, token.expires_at, token.revoked_at)


class TokenCreated(msgspec.Struct, frozen=True):
    token: TokenOut
    secret: str  # shown this once
