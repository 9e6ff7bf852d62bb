"""What a purge does to people: who is nowhere else is forgotten, with password, tokens and sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select

from gateway.admin_auth.service import AdminAuthenticator
from gateway.admin_auth.sessions import COOKIE
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.errors import Unauthenticated
from gateway.members import repository
from gateway.members.schemas import MemberCreate, TokenCreate
from gateway.members.service import Members
from gateway.models import Admin, AdminToken, Member
from gateway.principal import TenantId
from gateway.tenants.purge_parts import Accounts, Inventory, Part
from tests.gateway.conftest import Operator
from tests.gateway.tenants.conftest import OPERATOR, House

PASSWORD = "correct horse battery"
NewTenant = Callable[[], Awaitable[TenantId]]


def _address() -> IPv6Address:
    """Another's each time: log-ins are counted by network."""
    return IPv6Address(uuid4().int)


@dataclass(frozen=True)
class Person:
    account: UUID
    email: str
    cookie: str = ""
    token: str = ""


@dataclass(frozen=True)
class Room:
    members: Members
    accounts: AdminAuthenticator
    db: Database

    async def join(self, tenant: TenantId, email: str | None = None) -> Person:
        email = email or f"{uuid4().hex}@example.com"
        found = await self.members.add(OPERATOR, tenant, MemberCreate(email=email, role="viewer"))
        return Person(found.member.admin_id, email)

    async def enter(self, tenant: TenantId) -> Person:
        """With a password that was used, and a token."""
        person = await self.join(tenant)
        async with self.db.system_reader() as session:
            member = await session.scalar(select(Member.id).where(Member.admin_id == person.account))
        assert member is not None
        await self.members.set_password(OPERATOR, tenant, member, PASSWORD)
        _, token = await self.members.create_token(OPERATOR, tenant, member, TokenCreate(name="t"))
        cookie, _ = await self.accounts.log_in(person.email, PASSWORD, _address())
        return replace(person, cookie=cookie, token=token)

    async def known(self, *people: Person) -> list[bool]:
        async with self.db.system_reader() as session:
            found = set(await session.scalars(select(Admin.id)))
        return [person.account in found for person in people]


@pytest.fixture
def room(db: Database, house: House, peppers: Peppers) -> Room:
    return Room(Members(db, peppers), AdminAuthenticator(db, house.redis, peppers), db)


async def test_accounts_end_with_their_last_tenant_and_the_proof_counts_them(
    room: Room, house: House, new_tenant: NewTenant, operator: Operator
) -> None:
    leaving, staying = await new_tenant(), await new_tenant()
    alone, guest = await room.enter(leaving), await room.enter(staying)
    await room.join(leaving, guest.email)
    chief = await room.join(leaving, operator.email)
    unused = await room.join(leaving)
    await house.leave(leaving)

    died = Accounts(house.db)
    original = died.delete

    async def die(tenant: TenantId) -> None:
        await original(tenant)
        raise asyncio.CancelledError

    died.delete = die  # type: ignore[method-assign]
    parts: list[Part] = [died if part.kind == died.kind else part for part in house.parts()]
    with pytest.raises(asyncio.CancelledError):
        await house.run(parts)
    assert (await house.offboarding(leaving)).state == "purging"
    assert await house.run() == 1
    proof = (await house.offboarding(leaving)).proof
    assert proof is not None
    told = {each["kind"]: each for each in proof["deleted"]}
    ended = Inventory.of(str(person.account) for person in (alone, unused))
    assert told["accounts"] == {
        "kind": "accounts",
        "found": 2,
        "digest": ended.digest,
        "remaining": 0,
    }
    assert (told["table:members"]["found"], told["table:members"]["remaining"]) == (4, 0)

    assert await room.known(alone, unused, guest, chief) == [False, False, True, True]
    with pytest.raises(Unauthenticated):
        await room.accounts.by_session({COOKIE: alone.cookie})
    with pytest.raises(Unauthenticated):
        await room.accounts.by_token(f"Bearer {alone.token}")
    with pytest.raises(Unauthenticated):
        await room.accounts.log_in(alone.email, PASSWORD, _address())
    assert (await room.accounts.by_session({COOKIE: guest.cookie})).admin.id == guest.account
    assert (await room.accounts.by_token(f"Bearer {guest.token}")).only is not None
    async with house.db.system_reader() as session:
        left = select(func.count()).where(AdminToken.admin_id.in_([alone.account, unused.account]))
        assert await session.scalar(left) == 0


async def test_an_account_of_two_tenants_that_leave_at_once_ends_with_the_second(
    room: Room, house: House, new_tenant: NewTenant
) -> None:
    first, second = await new_tenant(), await new_tenant()
    person = await room.join(first)
    await room.join(second, person.email)
    await house.leave(first)
    await house.leave(second)
    assert await house.run() == 2
    assert await room.known(person) == [False]


async def test_two_last_memberships_that_end_at_the_same_moment_leave_no_account(
    room: Room, new_tenant: NewTenant
) -> None:
    """The later of the two must see that the other membership is gone."""
    tenants = [await new_tenant(), await new_tenant()]
    person = await room.join(tenants[0])
    await room.join(tenants[1], person.email)
    async with room.db.system_session() as session:
        await repository.remove(session, tenants[0], await repository.some_of(session, tenants[0], 9))
        other = asyncio.create_task(_leave(room.db, tenants[1]))
        await asyncio.wait([other], timeout=0.1)
        assert not other.done()  # it waits for this one's end
    await other
    assert await room.known(person) == [False]


async def test_one_who_joins_while_the_account_ends_has_one(room: Room, new_tenant: NewTenant) -> None:
    leaving, joined = await new_tenant(), await new_tenant()
    before = await room.join(leaving)
    async with room.db.system_session() as session:
        await repository.remove(session, leaving, await repository.some_of(session, leaving, 9))
        joining = asyncio.create_task(room.join(joined, before.email))
        await asyncio.wait([joining], timeout=0.1)
    after = await joining
    assert after.account != before.account
    assert await room.known(before, after) == [False, True]


async def test_whoever_is_removed_from_the_last_tenant_is_forgotten(
    room: Room, new_tenant: NewTenant
) -> None:
    tenants = [await new_tenant(), await new_tenant()]
    person = await room.join(tenants[0])
    await room.join(tenants[1], person.email)
    known = []
    for tenant in tenants:
        ((member, _),) = await room.members.page(tenant, None, 9)
        await room.members.remove(OPERATOR, tenant, member.id)
        known += await room.known(person)
    assert known == [True, False]


async def _leave(db: Database, tenant: TenantId) -> None:
    async with db.system_session() as session:
        await repository.remove(session, tenant, await repository.some_of(session, tenant, 9))
