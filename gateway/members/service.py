"""The rules of members.

A tenant's own administrator adds members and gives out tokens, which are good for that tenant only. Passwords
open all of an account's tenants, so only operators set them: whoever could set one for an email that another
tenant adds later would be in there too.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

from gateway.admin_auth.passwords import hash_password
from gateway.admin_auth.service import ADMIN_TOKEN
from gateway.audit.service import Actor, Change, record
from gateway.credentials import Peppers
from gateway.db import Database, SystemRead
from gateway.edits import require_match
from gateway.errors import BadRequest, Conflict, NotFound
from gateway.ids import uuid7
from gateway.members import repository
from gateway.members.repository import Found
from gateway.members.schemas import MAX_MEMBERS, MAX_TOKENS, MemberCreate, MemberPatch, TokenCreate
from gateway.models import AdminToken, Member
from gateway.moments import storable
from gateway.paging import ById
from gateway.principal import Admin, Role, TenantId


class Members:
    def __init__(self, db: Database, peppers: Peppers) -> None:
        self._db = db
        self._peppers = peppers

    async def role_in(self, admin: Admin, tenant: TenantId) -> Role | None:
        """As what an account may act for a tenant; None = the tenant is none of its business."""
        if admin.only is not None:
            return admin.only.role if admin.only.tenant == tenant else None
        if admin.is_operator:
            return Role.OPERATOR
        for each in admin.granted:
            if each.tenant == tenant:
                return each.role
        async with self._db.system_reader() as session:
            role = await repository.role_of(session, tenant, admin.id)
        return None if role is None else Role(role)

    async def tenants_of(self, admin: Admin) -> frozenset[TenantId] | None:
        """Those that it may see; None = all."""
        if admin.only is not None:
            return frozenset({admin.only.tenant})
        if admin.is_operator:
            return None
        async with self._db.system_reader() as session:
            return frozenset(await repository.tenants_of(session, admin.id)) | {
                each.tenant for each in admin.granted
            }

    async def roles_of(self, admin: Admin, tenants: Collection[UUID]) -> dict[UUID, Role]:
        """As what it may act for each of them; those that are none of its business are not among them."""
        if admin.only is not None:
            return {admin.only.tenant: admin.only.role} if admin.only.tenant in tenants else {}
        if admin.is_operator:
            return dict.fromkeys(tenants, Role.OPERATOR)
        async with self._db.system_reader() as session:
            found = await repository.roles_of(session, admin.id, tenants)
        return found | {each.tenant: each.role for each in admin.granted if each.tenant in tenants}

    async def add(self, actor: Actor, tenant: TenantId, wanted: MemberCreate) -> Found:
        """The answer is the same whether the email had an account or not. Raises `Conflict` for who is a
        member already, and when the tenant has too many."""
        email = wanted.email.strip().lower()
        async with self._db.system_session() as session:
            if await repository.count(session, tenant) >= MAX_MEMBERS:
                raise Conflict(f"A tenant has at most {MAX_MEMBERS} members.")
            account = await repository.account_of(session, uuid7(), email)
            member = Member(id=uuid7(), tenant_id=tenant, admin_id=account, role=wanted.role)
            if not await repository.add(session, member):
                raise Conflict("This email is a member already.", param="email")
            record(session, actor, Change("member.add", email, tenant, {"role": wanted.role}))
            return await _member(session, tenant, member.id)

    async def page(self, tenant: TenantId, after: ById | None, limit: int) -> list[Found]:
        async with self._db.system_reader() as session:
            return await repository.page(session, tenant, after, limit)

    async def get(self, tenant: TenantId, member: UUID) -> Found:
        """Raises `NotFound`."""
        async with self._db.system_reader() as session:
            return await _member(session, tenant, member)

    async def change(
        self, actor: Actor, tenant: TenantId, member: UUID, role: str, if_match: str | None = None
    ) -> Found:
        """Holds for the next request, of its tokens too. Raises `NotFound`, and `PreconditionFailed` for one
        that is not what `if_match` says."""
        async with self._db.system_session() as session:
            before = await _member(session, tenant, member, lock=True)
            require_match(if_match, MemberPatch.fields_of(before))
            if not await repository.set_role(session, tenant, member, role):
                raise _unknown()
            found = await _member(session, tenant, member)
            record(session, actor, Change("member.update", found.email, tenant, {"role": role}))
            return found

    async def remove(self, actor: Actor, tenant: TenantId, member: UUID) -> None:
        """With its tokens, and with the account where this was its last membership. Raises `NotFound`."""
        async with self._db.system_session() as session:
            found = await _member(session, tenant, member)
            await repository.remove(session, tenant, [member])
            record(session, actor, Change("member.remove", found.email, tenant, {"role": found.member.role}))

    async def set_password(self, actor: Actor, tenant: TenantId, member: UUID, password: str) -> None:
        """Ends sessions of the password before. Raises `NotFound`, `Conflict` for an operator's account."""
        hashed = await hash_password(password)
        async with self._db.system_session() as session:
            found = await _member(session, tenant, member)
            if not await repository.put_password(session, found.member.admin_id, hashed):
                raise Conflict("This account is an operator's.", code="operator_account")
            record(session, actor, Change("member.set_password", found.email, tenant))

    async def create_token(
        self, actor: Actor, tenant: TenantId, member: UUID, wanted: TokenCreate
    ) -> tuple[AdminToken, str]:
        """A token and its secret. Raises `NotFound`, `BadRequest` for an expiry in the past, `Conflict` when
        the member has too many."""
        expires_at = storable(wanted.expires_at, "expires_at")
        if expires_at is not None and expires_at <= datetime.now(UTC):
            raise BadRequest("'expires_at' lies in the past.", param="expires_at", code="invalid_value")
        secret = ADMIN_TOKEN.mint()
        async with self._db.system_session() as session:
            found = await _member(session, tenant, member)
            if await repository.count_live_tokens(session, member) >= MAX_TOKENS:
                raise Conflict(f"A member has at most {MAX_TOKENS} tokens. Revoke one first.")
            token = AdminToken(
                id=uuid7(),
                admin_id=found.member.admin_id,
                member_id=member,
                token_id=secret.public_id,
                secret_hmac=self._peppers.seal(secret),
                pepper_version=self._peppers.current_version,
                name=wanted.name,
                expires_at=expires_at,
            )
            session.add(token)
            await session.flush()
            await session.refresh(token)
            details = {"token": secret.public_id, "name": wanted.name}
            record(session, actor, Change("member.create_token", found.email, tenant, details))
        return token, secret.text

    async def tokens(
        self, tenant: TenantId, member: UUID, after: ById | None, limit: int
    ) -> list[AdminToken]:
        """Raises `NotFound`."""
        async with self._db.system_reader() as session:
            await _member(session, tenant, member)
            return await repository.tokens(session, member, after, limit)

    async def revoke_token(self, actor: Actor, tenant: TenantId, member: UUID, token_id: str) -> AdminToken:
        """Raises `NotFound`; revoking twice is the same as once."""
        async with self._db.system_session() as session:
            found = await _member(session, tenant, member)
            token = await repository.revoke_token(session, member, token_id)
            if token is None:
                raise NotFound("There is no such token.")
            record(session, actor, Change("member.revoke_token", found.email, tenant, {"token": token_id}))
            return token


async def _member(session: SystemRead, tenant: TenantId, member: UUID, *, lock: bool = False) -> Found:
    found = await repository.find(session, tenant, member, lock=lock)
    if found is None:
        raise _unknown()
    return found


def _unknown() -> NotFound:
    return NotFound("There is no such member.")
