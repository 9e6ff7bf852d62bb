"""All SQL of identities. Accounts belong to no tenant, so sessions are the system's."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from gateway.db import SystemRead, SystemWrite
from gateway.models import Admin, AdminIdentity, Lifecycle, Tenant


async def account_of(session: SystemRead, issuer: str, subject: str) -> Admin | None:
    """Also one that is disabled."""
    statement = (
        select(Admin)
        .join(AdminIdentity, AdminIdentity.admin_id == Admin.id)
        .where(AdminIdentity.issuer == issuer, AdminIdentity.subject == subject)
    )
    return (await session.scalars(statement)).one_or_none()


async def account_with(session: SystemRead, email: str) -> Admin | None:
    return (await session.scalars(select(Admin).where(Admin.email == email))).one_or_none()


async def add_account(session: SystemWrite, account: UUID, email: str) -> bool:
    """One without a password, and no operator; False when the email has an account."""
    made = (
        insert(Admin)
        .values(id=account, email=email, password_hash="", is_operator=False)
        .on_conflict_do_nothing(index_elements=[Admin.email])
        .returning(Admin.id)
    )
    return (await session.execute(made)).one_or_none() is not None


async def set_identity(session: SystemWrite, issuer: str, subject: str, account: UUID) -> None:
    """It is this account's from now on."""
    values = {"issuer": issuer, "subject": subject, "admin_id": account}
    of_person = [AdminIdentity.issuer, AdminIdentity.subject]
    again = insert(AdminIdentity).values(values)
    await session.execute(again.on_conflict_do_update(index_elements=of_person, set_={"admin_id": account}))


async def tenants_named(session: SystemRead, names: Collection[str]) -> dict[str, UUID]:
    """Those that are not leaving."""
    statement = select(Tenant.name, Tenant.id).where(
        Tenant.name.in_(names), Tenant.lifecycle == Lifecycle.ACTIVE
    )
    return {row[0]: row[1] for row in await session.execute(statement)}
