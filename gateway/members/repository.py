"""All SQL of members and their tokens. Sessions are the system's, for accounts belong to no tenant; every
look-up starts from the tenant all the same."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Select, delete, exists, func, select, update
from sqlalchemy.dialects.postgresql import insert

from gateway.db import SystemRead, SystemWrite
from gateway.models import Admin, AdminToken, Member
from gateway.paging import ById, beyond
from gateway.principal import Role, TenantId

NO_PASSWORD = ""


class Found(NamedTuple):
    member: Member
    email: str


async def account_of(session: SystemWrite, account: UUID, email: str) -> UUID:
    """The account with this email; made without a password, and no operator, when there is none. Locked, so
    that it doesn't end with its last membership before this transaction gives it one."""
    made = (
        insert(Admin)
        .values(id=account, email=email, password_hash=NO_PASSWORD, is_operator=False)
        .on_conflict_do_update(index_elements=[Admin.email], set_={"email": email})
        .returning(Admin.id)
    )
    return (await session.execute(made)).scalar_one()


async def add(session: SystemWrite, member: Member) -> bool:
    """False when the account is a member already."""
    values = {
        "id": member.id,
        "tenant_id": member.tenant_id,
        "admin_id": member.admin_id,
        "role": member.role,
    }
    made = insert(Member).values(values).on_conflict_do_nothing(constraint="members_once")
    return (await session.scalar(made.returning(Member.id))) is not None


async def find(session: SystemRead, tenant: TenantId, member: UUID, *, lock: bool = False) -> Found | None:
    """As the database has it now, whatever the session read before."""
    statement = (
        select(Member, Admin.email)
        .join(Admin, Admin.id == Member.admin_id)
        .where(Member.tenant_id == tenant, Member.id == member)
    )
    if lock:
        statement = statement.with_for_update(of=Member)
    row = (await session.execute(statement.execution_options(populate_existing=True))).one_or_none()
    return None if row is None else Found(row[0], row[1])


async def page(session: SystemRead, tenant: TenantId, after: ById | None, limit: int) -> list[Found]:
    """Oldest first."""
    statement = (
        select(Member, Admin.email)
        .join(Admin, Admin.id == Member.admin_id)
        .where(Member.tenant_id == tenant)
        .order_by(Member.id)
        .limit(limit)
    )
    if after is not None:
        statement = statement.where(beyond([Member.id], after, descending=False))
    return [Found(row[0], row[1]) for row in await session.execute(statement)]


async def count(session: SystemRead, tenant: TenantId) -> int:
    return (await session.execute(select(func.count()).where(Member.tenant_id == tenant))).scalar_one()


async def set_role(session: SystemWrite, tenant: TenantId, member: UUID, role: str) -> bool:
    changed = await session.execute(
        update(Member)
        .where(Member.tenant_id == tenant, Member.id == member)
        .values(role=role, updated_at=func.now())
        .returning(Member.id)
        .execution_options(synchronize_session=False)
    )
    return changed.one_or_none() is not None


async def remove(session: SystemWrite, tenant: TenantId, members: Collection[UUID]) -> None:
    """Their tokens go with them, and so does the account of whoever is a member of nothing else and no
    operator: it opens nothing, and nobody could find it any more."""
    these = (Member.tenant_id == tenant) & Member.id.in_(members)
    theirs = select(Member.admin_id).where(these)
    # Locked before anything is looked at: of two removals at once, the later one sees what the other did.
    locked = select(Admin.id).where(Admin.id.in_(theirs)).order_by(Admin.id).with_for_update()
    accounts = (await session.scalars(locked)).all()
    await session.execute(delete(Member).where(these))
    ended = (await session.scalars(_ended().where(Admin.id.in_(accounts)))).all()
    await session.execute(delete(AdminToken).where(AdminToken.admin_id.in_(ended)))
    await session.execute(delete(Admin).where(Admin.id.in_(ended)))


async def some_of(session: SystemRead, tenant: TenantId, limit: int) -> list[UUID]:
    return list(await session.scalars(select(Member.id).where(Member.tenant_id == tenant).limit(limit)))


async def accounts_of(session: SystemRead, tenant: TenantId) -> list[UUID]:
    """Those that would end with their membership of this tenant."""
    mine = exists().where(Member.admin_id == Admin.id, Member.tenant_id == tenant)
    return list(await session.scalars(_ended(but=tenant).where(mine)))


def _ended(but: TenantId | None = None) -> Select[UUID]:
    """Accounts that are members of no tenant, but for this one, and no operators."""
    elsewhere = exists().where(Member.admin_id == Admin.id)
    if but is not None:
        elsewhere = elsewhere.where(Member.tenant_id != but)
    return select(Admin.id).where(Admin.is_operator.is_(False), ~elsewhere)


async def role_of(session: SystemRead, tenant: TenantId, account: UUID) -> str | None:
    statement = select(Member.role).where(Member.tenant_id == tenant, Member.admin_id == account)
    return (await session.scalars(statement)).one_or_none()


async def roles_of(session: SystemRead, account: UUID, tenants: Collection[UUID]) -> dict[UUID, Role]:
    statement = select(Member.tenant_id, Member.role).where(
        Member.admin_id == account, Member.tenant_id.in_(tenants)
    )
    return {tenant: Role(role) for tenant, role in await session.execute(statement)}


async def tenants_of(session: SystemRead, account: UUID) -> list[TenantId]:
    found = await session.scalars(select(Member.tenant_id).where(Member.admin_id == account))
    return [TenantId(tenant) for tenant in found]


async def put_password(session: SystemWrite, account: UUID, password_hash: str) -> bool:
    """False for an operator's account, whose password is no business of a tenant's."""
    changed = await session.execute(
        update(Admin)
        .where(Admin.id == account, Admin.is_operator.is_(False))
        .values(password_hash=password_hash)
        .returning(Admin.id)
        .execution_options(synchronize_session=False)
    )
    return changed.one_or_none() is not None


async def tokens(session: SystemRead, member: UUID, after: ById | None, limit: int) -> list[AdminToken]:
    """Newest first; revoked ones too."""
    statement = (
        select(AdminToken).where(AdminToken.member_id == member).order_by(AdminToken.id.desc()).limit(limit)
    )
    if after is not None:
        statement = statement.where(beyond([AdminToken.id], after, descending=True))
    return list((await session.scalars(statement)).all())


async def count_live_tokens(session: SystemRead, member: UUID) -> int:
    statement = select(func.count()).where(AdminToken.member_id == member, AdminToken.revoked_at.is_(None))
    return (await session.execute(statement)).scalar_one()


async def revoke_token(session: SystemWrite, member: UUID, token_id: str) -> AdminToken | None:
    """The token, revoked now or earlier; None when the member has none of that id."""
    statement = (
        update(AdminToken)
        .where(AdminToken.member_id == member, AdminToken.token_id == token_id)
        .values(revoked_at=func.coalesce(AdminToken.revoked_at, func.now()))
        .returning(AdminToken)
        .execution_options(synchronize_session=False)
    )
    return (await session.scalars(statement)).one_or_none()
