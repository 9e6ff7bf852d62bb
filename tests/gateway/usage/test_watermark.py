"""What "complete until" says is never more than is true: of each source the last moment that is in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete, select, text, update

from gateway.db import Database
from gateway.models import UsageDrain
from gateway.principal import TenantId
from gateway.usage.drain import drain_dead, drain_own, run_drain
from gateway.usage.journal import Journal
from gateway.usage.repository import complete_until
from gateway.usage.watermark import (
    WorkerMark,
    folder_id,
    forget_drained,
    give_up_lost,
    journals_complete_until,
    tell_engine,
)
from tests.gateway.usage.test_journal import make_event

NOON = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
async def nobody_else(db: Database) -> AsyncIterator[None]:
    """The sources of other tests are gone."""
    async with db.system_session() as session:
        await session.execute(delete(UsageDrain))
    yield
    async with db.system_session() as session:
        await session.execute(delete(UsageDrain))


async def told(db: Database) -> datetime | None:
    async with db.system_reader() as session:
        return await journals_complete_until(session)


async def test_the_slowest_source_decides_and_nobody_is_nothing(db: Database) -> None:
    async with db.system_session() as session:
        await session.execute(delete(UsageDrain))  # a gateway of other tests may have told again
        assert await journals_complete_until(session) is None
        await tell_engine(session, "a", NOON)
        await tell_engine(session, "b", NOON + timedelta(hours=1))
        await tell_engine(session, "b", NOON - timedelta(hours=1))  # never backwards
    assert await told(db) == NOON
    async with db.system_session() as session:
        await tell_engine(session, "a", datetime.now(UTC))
        await tell_engine(session, "b", datetime.now(UTC))
    held_back = datetime.now(UTC) - timedelta(seconds=9)
    assert (found := await told(db)) is not None
    assert found < held_back


async def test_a_worker_tells_only_when_nothing_is_left(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    journal = Journal(tmp_path)
    mark = WorkerMark(db, journal)
    lost = make_event(tenant_id=tenant)
    journal.keep(lost)  # what the disk refused waits in memory
    await mark.tell(NOON)
    assert await source(db, journal.worker) is None
    await drain_own(db, journal)
    await mark.tell(NOON)
    assert await told(db) == NOON
    await mark.tell(NOON + timedelta(days=1))  # not every second
    assert await told(db) == NOON
    await journal.close()


async def test_a_worker_that_drains_tells_by_itself(db: Database, tenant: TenantId, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    began = datetime.now(UTC)
    event = make_event(tenant_id=tenant)
    await journal.append(event)
    task = asyncio.create_task(run_drain(db, journal))
    try:
        for _ in range(200):
            if (found := await source(db, journal.worker)) is not None:
                break
            await asyncio.sleep(0.05)
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert found is not None
    assert found.complete_until > began  # so the event is in
    assert found.folder == folder_id(tmp_path)
    await journal.close()


async def test_a_worker_that_ends_takes_itself_out_of_the_way_if_it_left_nothing(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    for left in (False, True):
        journal = Journal(tmp_path)
        mark = WorkerMark(db, journal)
        await mark.tell(NOON)
        await journal.append(make_event(tenant_id=tenant))
        if not left:
            await drain_own(db, journal)
        await journal.close()
        await mark.leave()
        assert (await source(db, journal.worker) is not None) == left


async def source(db: Database, name: str) -> UsageDrain | None:
    async with db.system_reader() as session:
        return (await session.scalars(select(UsageDrain).where(UsageDrain.source == name))).one_or_none()


async def test_a_dead_worker_is_in_the_way_until_its_journal_is_drained(
    db: Database, tenant: TenantId, tmp_path: Path
) -> None:
    async with db.system_session() as session:  # gateways of other tests are no workers of this one
        await session.execute(delete(UsageDrain).where(UsageDrain.kind == "worker"))
    journal = Journal(tmp_path)
    await WorkerMark(db, journal).tell(NOON)
    assert await forget_drained(db, tmp_path) == 0  # it lives: its segment says so
    await journal.append(make_event(tenant_id=tenant))
    await journal.close()  # it died with a line on its disk
    assert await forget_drained(db, tmp_path / "another") == 0
    assert await forget_drained(db, tmp_path) == 0
    assert await told(db) == NOON
    assert await drain_dead(db, tmp_path) == 1
    assert await forget_drained(db, tmp_path) == 1
    assert await source(db, journal.worker) is None
    assert await told(db) != NOON


async def test_a_source_that_is_silent_for_a_day_is_given_up(db: Database) -> None:
    async with db.system_session() as session:
        await tell_engine(session, "gone", NOON)
        await tell_engine(session, "here", NOON)
        await session.execute(
            update(UsageDrain)
            .where(UsageDrain.source == "gone")
            .values(updated_at=text("now() - interval '25 hours'"))
        )
    async with db.system_session() as session:
        assert await give_up_lost(session) == 1
    assert await source(db, "gone") is None
    assert await source(db, "here") is not None


async def test_rows_that_are_not_rolled_up_yet_hold_a_tenants_own_back(
    db: Database, new_tenant: Callable[[], Awaitable[TenantId]], tmp_path: Path
) -> None:
    slow, quick = await new_tenant(), await new_tenant()
    journal = Journal(tmp_path)
    ended = NOON - timedelta(hours=3)
    await journal.append(make_event(tenant_id=slow, ended_at=ended))
    await drain_own(db, journal)
    await WorkerMark(db, journal).tell(NOON)
    found = []
    for tenant in (slow, quick):
        async with db.tenant_snapshot(tenant) as session:
            found.append(await complete_until(session, tenant))
    assert found == [ended, NOON]
    await journal.close()


def test_a_folder_keeps_its_id_whoever_asks_first(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    assert folder_id(folder) == folder_id(folder)
    assert folder_id(tmp_path / "other") != folder_id(folder)
    assert [path.name for path in folder.iterdir()] == [".journal-folder"]


async def test_the_app_role_learns_the_moment_and_nothing_else(db: Database, tenant: TenantId) -> None:
    async with db.system_session() as session:
        await tell_engine(session, "a", NOON)
    async with db.tenant_reader(tenant) as session:
        assert await journals_complete_until(session) == NOON
