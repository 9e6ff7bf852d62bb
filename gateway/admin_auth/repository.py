"""All SQL of accounts and their tokens."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, or_, select, update
from sqlalchemy.dialects.postgresql import insert

from gateway.db import SystemRead, SystemWrite
from gateway.models import Admin, AdminToken, Member


class FoundToken(NamedTuple):
    token: AdminToken
    admin: Admin
    member: Member | None  # whose token it is, when it is good for one membership only


async def find_by_email(session: SystemRead, email: str) -> Admin | None:
    statement = select(Admin).where(Admin.email == email, Admin.disabled_at.is_(None))
    return (await session.scalars(statement)).one_or_none()


async def find(session: SystemRead, admin: UUID) -> Admin | None:
    statement = select(Admin).where(Admin.id == admin, Admin.disabled_at.is_(None))
    return (await session.scalars(statement)).one_or_none()


async def find_token(session: SystemRead, token_id: str) -> FoundToken | None:
    """A token that is neither revoked nor expired, with its account, which is not disabled."""
    statement = (
        select(AdminToken, Admin, Member)
        .join(Admin, Admin.id == AdminToken.admin_id)
        .outerjoin(Member, Member.id == AdminToken.member_id)
        .where(
            AdminToken.token_id == token_id,
            AdminToken.revoked_at.is_(None),
            or_(AdminToken.expires_at.is_(None), AdminToken.expires_at > func.now()),
            Admin.disabled_at.is_(None),
        )
    )
    row = (await session.execute(statement)).one_or_none()
    return None if row is None else FoundToken(row[0], row[1], row[2])


async def change_password(session: SystemWrite, admin: UUID, before: str, password_hash: str) -> Admin | None:
    """The account as it then is; None when the password is not the one of `before` any more."""
    changed = await session.scalars(
        update(Admin)
        .where(Admin.id == admin, Admin.password_hash == before)
        .values(password_hash=password_hash, must_change_password=False)
        .returning(Admin)
        .execution_options(synchronize_session=False)
    )
    return changed.one_or_none()


async def put_admin(
    session: SystemWrite, admin: UUID, email: str, password_hash: str, *, must_change: bool = False
) -> UUID:
    """Create the operator, or give the existing one this password; its id."""
    values = {
        "password_hash": password_hash,
        "must_change_password": must_change,
        "bootstrap_hash": password_hash,
    }
    statement = (
        insert(Admin)
        .values(id=admin, email=email, **values)
        .on_conflict_do_update(index_elements=[Admin.email], set_={**values, "is_operator": True})
        .returning(Admin.id)
    )
    return (await session.execute(statement)).scalar_one()


async def make_operator(session: SystemWrite, admin: UUID) -> UUID:
    await session.execute(update(Admin).where(Admin.id == admin).values(is_operator=True))
    return admin


async def put_token(session: SystemWrite, token: AdminToken) -> None:
    """Register a token; one that exists keeps its row, sealed anew."""
    values = {
        "id": token.id,
        "admin_id": token.admin_id,
        "token_id": token.token_id,
        "secret_hmac": token.secret_hmac,
        "pepper_version": token.pepper_version,
        "name": token.name,
    }
    sealed = {"secret_hmac": token.secret_hmac, "pepper_version": token.pepper_version}
    await session.execute(
        insert(AdminToken)
        .values(**values)
        .on_conflict_do_update(index_elements=[AdminToken.token_id], set_=sealed)
    )


async def reseal(session: SystemWrite, token: UUID, sealed: bytes, version: str) -> None:
    await session.execute(
        update(AdminToken).where(AdminToken.id == token).values(secret_hmac=sealed, pepper_version=version)
    )
