"""Wire types of logging in."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.admin_auth.sessions import Session


class LogIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    email: Annotated[str, Meta(min_length=3, max_length=254)]
    password: Annotated[str, Meta(min_length=1, max_length=256)]


class AdminOut(msgspec.Struct, frozen=True):
    id: UUID
    email: str
    is_operator: bool  # else a member of the tenants that it can list


class SessionOut(msgspec.Struct, frozen=True):
    admin: AdminOut
    csrf_token: str  # to be sent back as `x-csrf-token` with everything that changes something

    @classmethod
    def of(cls, session: Session) -> SessionOut:
        return cls(AdminOut(session.admin.id, session.admin.email, session.admin.is_operator), session.csrf)
