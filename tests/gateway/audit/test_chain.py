"""The hash chain over a real database: what its trigger writes, a reader without trust finds whole; and
whatever an owner of the database changes afterwards, the walk names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from deploy.local.services import DatabaseUrls
from gateway.audit.chain import GENESIS, Broken, Head, Link, Walk, hash_after
from gateway.audit.service import SYSTEM, Actor, AuditLog, Change, record
from gateway.db import Database
from gateway.errors import BadRequest
from gateway.ids import uuid7
from gateway.principal import TenantId
from migrations import async_url


@pytest.fixture
def log(db: Database) -> AuditLog:
    return AuditLog(db)


@pytest.fixture
async def owner(database: DatabaseUrls) -> AsyncIterator[AsyncEngine]:
    """Whoever owns the database can lift its triggers: what the chain is there to show."""
    engine = create_async_engine(async_url(database.owner))
    yield engine
    await engine.dispose()


async def tamper(owner: AsyncEngine, statement: str, **values: Any) -> None:
    foreign = "audit_links_event_id_fkey"
    async with owner.begin() as connection:
        for lift in (
            "ALTER TABLE audit_events DISABLE TRIGGER USER, NO FORCE ROW LEVEL SECURITY",
            f"ALTER TABLE audit_links DISABLE TRIGGER USER, DROP CONSTRAINT {foreign}",
        ):
            await connection.execute(text(lift))
        changed = await connection.execute(text(statement), values)
        assert changed.rowcount == 1
        for restore in (
            f"ALTER TABLE audit_links ADD CONSTRAINT {foreign} FOREIGN KEY (event_id)"
            " REFERENCES audit_events (id) NOT VALID, ENABLE TRIGGER USER",
            "ALTER TABLE audit_events ENABLE TRIGGER USER, FORCE ROW LEVEL SECURITY",
        ):
            await connection.execute(text(restore))


async def write(db: Database, tenant: TenantId, number: int) -> None:
    for n in range(number):
        async with db.tenant_session(tenant) as session:
            record(session, Actor("admin:a@b.c", uuid7()), Change("thing.change", f"t{n}", tenant, {"n": n}))


async def test_what_the_trigger_links_a_reader_finds_whole(
    db: Database, log: AuditLog, tenant: TenantId
) -> None:
    awkward: dict[str, Any] = {
        'quote"\\': "tab\t newline\n bell\x07 delete\x7f 世界 \U0001f600 /",
        "b": [1, -0.5, 1e30, 12345678901234567890, True, None, {"z": 1, "aa": {}}],
        "": [],
    }
    async with db.system_session() as session:
        record(session, SYSTEM, Change("a.b", 'ta"r\\get\n', tenant, awkward))
        record(session, SYSTEM, Change("a.c", "second of one transaction", tenant))
    await write(db, tenant, 3)
    verdict = await log.verify(tenant)
    assert (verdict.broken, verdict.complete, verdict.checked, verdict.seq) == (None, True, 5, 5)
    assert await log.head(tenant) == Head(tenant, 5, verdict.hash)
    rest = await log.verify(tenant, after=3)
    assert (rest.broken, rest.checked, rest.hash) == (None, 2, verdict.hash)
    with pytest.raises(BadRequest):
        await log.verify(tenant, after=6)


async def test_chains_of_tenants_are_their_own_and_the_platform_has_one(
    db: Database, log: AuditLog, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    first, second = await new_tenant(), await new_tenant()
    async with db.system_session() as session:
        for tenant in (first, second, None, first):
            record(session, SYSTEM, Change("a.b", "x", tenant))
    assert [(await log.head(chain)).seq for chain in (first, second)] == [2, 1]
    assert (await log.verify(UUID(int=0))).broken is None
    assert (await log.head(await new_tenant())).hash == GENESIS


async def test_many_at_once_make_one_chain(db: Database, log: AuditLog, tenant: TenantId) -> None:
    await asyncio.gather(*(write(db, tenant, 5) for _ in range(8)))
    verdict = await log.verify(tenant)
    assert (verdict.broken, verdict.seq) == (None, 40)


async def test_links_wait_for_the_commit_so_locks_can_not_cross(db: Database, tenant: TenantId) -> None:
    """Two changes that record first and take the tenant's row later, the one in the other's way."""

    async def change(pause: asyncio.Event, go: asyncio.Event) -> None:
        async with db.tenant_session(tenant) as session:
            record(session, SYSTEM, Change("a.b", "x", tenant))
            await session.flush()
            pause.set()
            await go.wait()
            await session.execute(text("UPDATE tenants SET epoch = epoch + 1"))

    go, first, second = asyncio.Event(), asyncio.Event(), asyncio.Event()
    both = asyncio.gather(change(first, go), change(second, go))
    await first.wait()
    await second.wait()  # had the first held its chain since it wrote, the second could not have written
    go.set()
    await both


async def test_a_change_that_is_rolled_back_leaves_no_link(
    db: Database, log: AuditLog, tenant: TenantId
) -> None:
    await write(db, tenant, 1)

    async def fail() -> None:
        async with db.tenant_session(tenant) as session:
            record(session, SYSTEM, Change("a.b", "x", tenant))
            await session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    await write(db, tenant, 1)
    assert (await log.verify(tenant)).seq == 2


TAMPERING = [
    ("UPDATE audit_events SET actor = 'admin:else' WHERE id = :event", "content"),
    ("UPDATE audit_events SET details = details || '{\"n\": 9}' WHERE id = :event", "content"),
    ("UPDATE audit_events SET created_at = created_at - interval '1 us' WHERE id = :event", "content"),
    ("UPDATE audit_events SET request_id = NULL WHERE id = :event", "content"),
    ("UPDATE audit_events SET tenant_id = NULL WHERE id = :event", "content"),
    ("DELETE FROM audit_events WHERE id = :event", "event_missing"),
    ("DELETE FROM audit_links WHERE event_id = :event", "gap"),
    ("UPDATE audit_links SET previous = sha256('x') WHERE event_id = :event", "previous"),
    ("UPDATE audit_links SET hash = sha256('x') WHERE event_id = :event", "content"),
]


@pytest.mark.parametrize(("statement", "reason"), TAMPERING)
async def test_the_first_broken_place_is_named(
    db: Database, log: AuditLog, owner: AsyncEngine, tenant: TenantId, statement: str, reason: str
) -> None:
    await write(db, tenant, 4)
    pages = [link async for page in log.export(tenant) for link in page]
    await tamper(owner, statement, event=pages[2].event)
    broken = (await log.verify(tenant)).broken
    assert broken == Broken(3, None if reason == "gap" else pages[2].event, reason)


async def test_a_head_that_was_kept_shows_what_was_cut_off_or_made_anew(
    db: Database, log: AuditLog, owner: AsyncEngine, tenant: TenantId
) -> None:
    await write(db, tenant, 3)
    kept = await log.head(tenant)
    pages = [link async for page in log.export(tenant) for link in page]
    assert (await log.verify(tenant, kept=kept)).broken is None
    other = await log.verify(tenant, kept=Head(tenant, 2, kept.hash))
    assert other.broken == Broken(2, pages[1].event, "head")
    await tamper(owner, "DELETE FROM audit_links WHERE event_id = :event", event=pages[2].event)
    assert (await log.verify(tenant)).broken == Broken(3, pages[2].event, "unlinked")
    await tamper(owner, "DELETE FROM audit_events WHERE id = :event", event=pages[2].event)
    assert (await log.verify(tenant)).broken is None  # the chain alone can't tell
    assert (await log.verify(tenant, kept=kept)).broken == Broken(3, None, "truncated")


async def test_nobody_writes_links_or_changes_them(
    db: Database, owner: AsyncEngine, tenant: TenantId
) -> None:
    await write(db, tenant, 1)
    link = "INSERT INTO audit_links SELECT chain, seq + 1, event_id, hash, hash FROM audit_links"
    for statement in (link, "UPDATE audit_links SET seq = 9", "DELETE FROM audit_links"):
        with pytest.raises(DBAPIError, match="permission denied"):
            async with db.system_session() as session:
                await session.execute(text(statement))
    with pytest.raises(DBAPIError, match="permission denied"):
        async with db.tenant_session(tenant) as tenant_session:
            await tenant_session.execute(text("SELECT * FROM audit_links"))
    with pytest.raises(DBAPIError, match="append-only"):
        async with owner.begin() as connection:
            await connection.execute(text("DELETE FROM audit_links"))


def chain_of(contents: list[str]) -> list[Link]:
    links, last = [], GENESIS
    for n, content in enumerate(contents):
        made = hash_after(last, content)
        links.append(Link(n + 1, UUID(int=n), last, made, content))
        last = made
    return links


@given(st.lists(st.text(), min_size=2, max_size=12), st.data())
def test_no_reordering_removal_or_change_goes_unseen(contents: list[str], data: st.DataObject) -> None:
    links = chain_of(contents)
    kept = Head(UUID(int=0), links[-1].seq, links[-1].hash)
    place = data.draw(st.integers(0, len(links) - 1))
    kind = data.draw(st.sampled_from(["remove", "swap", "change", "cut"]))
    broken_links = list(links)
    if kind == "remove":
        del broken_links[place]
    elif kind == "swap":
        other = (place + 1) % len(links)
        broken_links[place], broken_links[other] = broken_links[other], broken_links[place]
    elif kind == "change":
        old = links[place]
        broken_links[place] = Link(old.seq, old.event, old.previous, old.hash, f"{old.content}!")
    else:
        broken_links = broken_links[:place]
    walk = Walk(kept=kept)
    found = next((b for b in map(walk.take, broken_links) if b is not None), None) or walk.end()
    assert found is not None
    whole = Walk(kept=kept)
    assert [whole.take(link) for link in links] == [None] * len(links)
    assert whole.end() is None
