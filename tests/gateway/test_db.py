"""Sessions: what they commit, what they refuse, and what a database that is away looks like."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from deploy.local.services import DatabaseUrls
from gateway.db import Database, PoolLimits
from gateway.errors import Unavailable
from gateway.models import Tenant
from gateway.principal import TenantId
from gateway.usage.repository import insert_events
from migrations import async_url
from tests.gateway.usage.test_journal import make_event


class Oops(Exception):
    pass


async def test_a_block_that_raises_leaves_nothing_behind(db: Database, tenant: TenantId) -> None:
    async def change_and_fail() -> None:
        async with db.system_session() as session:
            await session.execute(text("UPDATE tenants SET salt = 'changed' WHERE id = :id"), {"id": tenant})
            raise Oops

    with pytest.raises(Oops):
        await change_and_fail()
    async with db.system_reader() as reader:
        row = (await reader.scalars(select(Tenant).where(Tenant.id == tenant))).one()
    assert row.salt != "changed"


async def test_readers_can_not_write(db: Database, tenant: TenantId) -> None:
    with pytest.raises(DBAPIError, match="read-only transaction"):
        async with db.tenant_reader(tenant) as session:
            await session.execute(text("UPDATE tenants SET epoch = epoch + 1"))


async def test_a_database_that_is_away_is_a_503() -> None:
    nowhere = "postgresql://motet_app:x@127.0.0.1:1/motet"
    db = Database(nowhere, nowhere)
    with pytest.raises(Unavailable) as caught:
        async with db.system_reader():
            pass
    assert caught.value.status == 503
    assert caught.value.headers["retry-after"] == "1"
    await db.close()


async def test_a_statement_over_its_limit_is_a_503(database: DatabaseUrls) -> None:
    quick = Database(database.app, database.system, PoolLimits(statement_ms=50))
    with pytest.raises(Unavailable):
        async with quick.system_reader() as session:
            await session.execute(text("SELECT pg_sleep(5)"))
    await quick.close()


async def test_a_killed_connection_is_a_503_and_the_next_one_works(db: Database) -> None:
    with pytest.raises(Unavailable):
        async with db.system_reader() as session:
            await session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    async with db.system_reader() as session:
        assert (await session.execute(text("SELECT 1"))).scalar_one() == 1


async def test_a_server_that_hangs_is_a_503_in_bounded_time(database: DatabaseUrls) -> None:
    quick = Database(database.app, database.system, PoolLimits(statement_ms=100))

    async def ask_a_stopped_server() -> None:
        async with quick.system_reader() as session:
            pid = (await session.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            os.kill(pid, signal.SIGSTOP)
            try:
                await session.execute(text("SELECT 1"))
            finally:
                os.kill(pid, signal.SIGCONT)

    began = time.monotonic()
    with pytest.raises(Unavailable):
        await ask_a_stopped_server()
    assert time.monotonic() - began < 10
    async with quick.system_reader() as session:
        assert (await session.execute(text("SELECT 1"))).scalar_one() == 1
    await quick.close()


async def test_a_connection_killed_before_a_copy_is_a_503(db: Database, tenant: TenantId) -> None:
    """COPY goes by the driver alone, past SQLAlchemy's own errors."""

    async def copy_on_a_dead_connection() -> None:
        async with db.system_session() as session:
            pid = (await session.execute(text("SELECT pg_backend_pid()"))).scalar_one()
            async with db.system_session() as other:
                await other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
            await insert_events(session, [make_event(tenant_id=tenant)])

    with pytest.raises(Unavailable):
        await copy_on_a_dead_connection()


@pytest.mark.parametrize("mode", ["disable", "require", "verify-full"])
def test_libpqs_sslmode_is_asyncpgs_ssl(mode: str) -> None:
    url = async_url(f"postgres://user:secret@host:5/db?sslmode={mode}")
    assert url.drivername == "postgresql+asyncpg"
    assert dict(url.query) == {"ssl": mode}
    assert url.password == "secret"


async def test_errors_do_not_tell_what_was_written(db: Database) -> None:
    """They go to the logs, with their statement."""
    with pytest.raises(DBAPIError) as caught:
        async with db.system_reader() as session:
            await session.execute(text("SELECT 1 / (length(:text) - 9)"), {"text": "a tenants"})
    assert "a tenants" not in str(caught.value)


async def test_a_tenants_slow_statements_leave_connections_to_the_others(
    database: DatabaseUrls, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    small = Database(database.app, database.system, PoolLimits(size=2, overflow=0, wait_s=1.0))
    loud, quiet = await new_tenant(), await new_tenant()
    holding, go_on, num_held = asyncio.Event(), asyncio.Event(), 0

    async def hold() -> None:
        nonlocal num_held
        async with small.tenant_reader(loud):
            num_held += 1
            holding.set()
            await go_on.wait()

    crowd = [asyncio.create_task(hold()) for _ in range(4)]
    await holding.wait()
    async with small.tenant_reader(quiet) as session:
        assert await session.scalar(text("SELECT 1")) == 1
    assert num_held == 1
    with pytest.raises(Unavailable):  # it waits for itself, and not for ever
        async with small.tenant_reader(loud):
            pass
    go_on.set()
    heard = await asyncio.gather(*crowd, return_exceptions=True)
    assert heard[0] is None
    assert not small._shares._open
    await small.close()
