"""The wall behind the repositories: what the application's own database role can reach, whatever its SQL
says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from deploy.local.services import DatabaseUrls
from gateway.db import Database
from gateway.ids import uuid7
from gateway.models import ApiKey, AuditEvent, Tenant
from gateway.principal import TenantId
from migrations import async_url

PUBLIC_TABLES = {
    "bases",
    "alembic_version",
    "billing_periods",
}  # hold nothing of a tenant; motet_app reads them


@pytest.fixture
async def app(database: DatabaseUrls) -> AsyncIterator[AsyncConnection]:
    """A bare connection as motet_app: no session of ours, no tenant set."""
    engine = create_async_engine(async_url(database.app))
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


async def add_key(db: Database, tenant: TenantId) -> str:
    key = ApiKey(
        id=uuid7(),
        tenant_id=tenant,
        key_id=uuid4().hex[:12],
        name="k",
        secret_hmac=b"\0" * 32,
        pepper_version="v",
        scopes=["inference"],
    )
    async with db.system_session() as session:
        session.add(key)
    return key.key_id


async def test_without_a_tenant_the_app_role_sees_nothing(
    app: AsyncConnection, db: Database, tenant: TenantId
) -> None:
    await add_key(db, tenant)
    for table in ("tenants", "api_keys", "adapters", "usage_ledger", "usage_charges", "audit_events"):
        assert (await app.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one() == 0, table


async def test_a_tenant_sees_its_own_rows_only(
    db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    mine, theirs = await new_tenant(), await new_tenant()
    await add_key(db, mine)
    await add_key(db, theirs)
    async with db.tenant_reader(mine) as session:
        assert {key.tenant_id for key in await session.scalars(select(ApiKey))} == {mine}
        assert {row.id for row in await session.scalars(select(Tenant))} == {mine}


async def test_a_tenant_can_not_write_a_row_of_another(
    db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    mine, theirs = await new_tenant(), await new_tenant()
    event = AuditEvent(id=uuid7(), tenant_id=theirs, actor="x", action="x", target="x", details={})
    with pytest.raises(DBAPIError, match="row-level security"):
        async with db.tenant_session(mine) as session:
            session.add(event)


async def test_a_tenant_can_not_change_its_own_limits(db: Database, tenant: TenantId) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"):
        async with db.tenant_session(tenant) as session:
            await session.execute(text("UPDATE tenants SET tokens_per_minute = NULL"))


async def test_the_tenant_of_one_transaction_is_gone_in_the_next(db: Database, tenant: TenantId) -> None:
    async with db.tenant_reader(tenant) as session:
        assert (await session.execute(text("SELECT count(*) FROM tenants"))).scalar_one() == 1
    async with db._tenant_read() as bare:
        assert (await bare.execute(text("SELECT count(*) FROM tenants"))).scalar_one() == 0


async def test_the_app_role_can_not_lift_the_wall(app: AsyncConnection) -> None:
    row = (
        await app.execute(
            text("SELECT rolsuper, rolbypassrls, rolcreaterole FROM pg_roles WHERE rolname = current_user")
        )
    ).one()
    assert tuple(row) == (False, False, False)
    memberships = await app.execute(
        text("SELECT count(*) FROM pg_auth_members WHERE member = current_user::regrole")
    )
    assert memberships.scalar_one() == 0
    for attempt in (
        "ALTER TABLE api_keys DISABLE ROW LEVEL SECURITY",
        "SET ROLE motet_system",
        "SET ROLE motet_owner",
        "DROP POLICY tenant ON api_keys",
        "CREATE FUNCTION leak() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
        "SELECT motet_ensure_partitions(1)",
        "TRUNCATE audit_events",
    ):
        with pytest.raises(DBAPIError):
            await app.execute(text(attempt))
        await app.rollback()


async def test_row_security_can_not_be_switched_off_to_see_more(app: AsyncConnection) -> None:
    await app.execute(text("SET row_security = off"))
    with pytest.raises(DBAPIError, match="row-level security"):
        await app.execute(text("SELECT * FROM api_keys"))


async def test_the_app_role_reaches_no_table_without_a_tenant_but_these(app: AsyncConnection) -> None:
    """Those that have one are walled: `test_second_wall.py`."""
    rows = await app.execute(
        text(
            """
            SELECT c.relname FROM pg_class c
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
              AND (has_table_privilege('motet_app', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')
                   OR has_any_column_privilege('motet_app', c.oid, 'SELECT, INSERT, UPDATE'))
              AND c.relname <> 'tenants' AND NOT EXISTS
                (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'tenant_id')
            """
        )
    )
    assert {name for (name,) in rows} == PUBLIC_TABLES


async def test_partitions_can_not_be_read_past_their_parent(app: AsyncConnection) -> None:
    rows = await app.execute(text("SELECT inhrelid::regclass::text FROM pg_inherits"))
    partitions = [name for (name,) in rows if name.startswith("usage_ledger_")]
    assert len([name for name in partitions if not name.endswith(("idx", "pkey"))]) >= 4
    with pytest.raises(DBAPIError, match="permission denied"):
        await app.execute(text("SELECT * FROM usage_ledger_default"))


async def test_the_audit_log_takes_no_changes_even_from_its_owner(
    database: DatabaseUrls, db: Database, tenant: TenantId
) -> None:
    event = AuditEvent(id=uuid7(), tenant_id=tenant, actor="x", action="x", target="x", details={})
    async with db.system_session() as session:
        session.add(event)
    engine = create_async_engine(async_url(database.owner))
    async with engine.connect() as owner:
        with pytest.raises(DBAPIError, match="append-only"):
            await owner.execute(text("DELETE FROM audit_events"))
    await engine.dispose()
    with pytest.raises(ProgrammingError, match="permission denied"):
        async with db.system_session() as session:
            await session.execute(text("UPDATE audit_events SET actor = 'y'"))
