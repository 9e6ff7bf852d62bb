"""Could the application's database role see past row-level security? Every way that PostgreSQL has is looked
for in its catalog, over all tables that have a tenant, so that a new table without a wall fails here; and
each way is opened once, to see that it would be found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from deploy.local.services import DatabaseUrls
from gateway.db import Database
from gateway.principal import TenantId
from migrations import async_url
from tests.gateway.test_row_security import add_key

NO_WALL = {
    "usage_staging": "PostgreSQL takes no COPY into a table with row security",
    "offboardings": "of operators and control, who see all tenants",
    "retention_rules": "of operators and control, who see all tenants",
}
"""Have a tenant and no wall, and why. The role has no right to them at all, which is seen to here."""

AS_OWNER = {
    "motet_journals_complete_until",  # one moment, the same to all tenants
    "motet_shared_usage_complete_until",  # likewise
    "motet_shared_adapter",  # these three: of what is shared with the session's tenant, or used of its own;
    "motet_shared_adapters",  # their owner sees no more than that itself, which is seen to below
    "motet_shared_usage",
}
"""Functions that the role runs with their owner's rights."""

ROLE = """
SELECT 'the role is ' || said FROM pg_roles, LATERAL (VALUES
  (rolsuper, 'a superuser'), (rolbypassrls, 'free of row security'), (rolcreaterole, 'a maker of roles'),
  (rolcreatedb, 'a maker of databases'), (rolreplication, 'a reader of the log')) AS v (has, said)
WHERE rolname = 'motet_app' AND has
UNION ALL
SELECT 'the role may become ' || roleid::regrole::text FROM pg_auth_members
WHERE member = 'motet_app'::regrole
UNION ALL
SELECT 'the role owns ' || relname FROM pg_class WHERE relowner = 'motet_app'::regrole
UNION ALL
SELECT 'the role may run ' || proname || ' as its owner' FROM pg_proc
WHERE prosecdef AND pronamespace = 'public'::regnamespace AND proname <> ALL (:as_owner)
  AND has_function_privilege('motet_app', oid, 'EXECUTE')
UNION ALL
SELECT 'others choose what ' || proname || ' finds under a name' FROM pg_proc
WHERE prosecdef AND pronamespace = 'public'::regnamespace
  AND NOT EXISTS (SELECT FROM unnest(proconfig) AS given WHERE given LIKE 'search_path=pg_catalog%')
UNION ALL
SELECT 'anybody may run ' || proname || ' as its owner' FROM pg_proc
WHERE prosecdef AND pronamespace = 'public'::regnamespace AND prorettype <> 'trigger'::regtype
  AND has_function_privilege('public', oid, 'EXECUTE')
UNION ALL
SELECT 'the role may make tables' WHERE has_schema_privilege('motet_app', 'public', 'CREATE')
"""

# Of each relation: its tenant's column, what the role may do with it, and whether a wall stands before it.
RELATIONS = """
WITH relation AS (
  SELECT c.oid, c.relname AS name, c.relkind AS kind, c.relispartition AS part,
         c.relrowsecurity AND c.relforcerowsecurity AS forced,
         coalesce(c.reloptions @> '{security_invoker=true}', false) AS invoker,
         CASE WHEN c.relname = 'tenants' THEN 'id' ELSE
           (SELECT attname FROM pg_attribute a WHERE a.attrelid = c.oid AND attname = 'tenant_id'
            AND NOT attisdropped) END AS tenant,
         has_table_privilege('motet_app', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')
           OR has_any_column_privilege('motet_app', c.oid, 'SELECT, INSERT, UPDATE, REFERENCES') AS reached,
         has_table_privilege('motet_app', c.oid, 'TRUNCATE, REFERENCES, TRIGGER') AS beyond_rows
  FROM pg_class c
  WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
), policy AS (
  SELECT polrelid, polpermissive, pg_get_expr(polqual, polrelid) AS seen,
         pg_get_expr(polwithcheck, polrelid) AS written
  FROM pg_policy WHERE polroles && ARRAY[0::oid, 'motet_app'::regrole::oid]
)
SELECT r.name, r.kind::text, r.part, r.forced, r.invoker, r.tenant, r.reached, r.beyond_rows,
       (SELECT count(*) FROM policy p WHERE p.polrelid = r.oid) AS policies,
       (SELECT count(*) FROM policy p WHERE p.polrelid = r.oid AND p.polpermissive
        AND p.seen = format(:bound, r.tenant) AND p.written = p.seen) AS walls
FROM relation r ORDER BY r.name
"""
BOUND = "(%s = (NULLIF(current_setting('motet.tenant'::text, true), ''::text))::uuid)"
"""The one policy there may be. Without a tenant it is null, which is not true, so no row passes."""


async def holes(connection: AsyncConnection) -> set[str]:
    """Every way past the wall."""
    found = {said for (said,) in await connection.execute(text(ROLE), {"as_owner": list(AS_OWNER)})}
    for row in await connection.execute(text(RELATIONS), {"bound": BOUND}):
        if row.reached and row.kind in "vmf" and not row.invoker:
            found.add(f"{row.name} shows what its owner sees")
        if row.part:
            if row.reached:
                found.add(f"the partition {row.name} can be read past its parent")
            continue
        if row.tenant is None or row.kind not in "rp":
            continue
        if row.beyond_rows:
            found.add(f"{row.name} can be emptied or referenced past its rows")
        if row.name in NO_WALL:
            if row.reached:
                found.add(f"{row.name} has no wall and can be reached")
        elif not row.forced:
            found.add(f"row security of {row.name} is not forced")
        elif (row.policies, row.walls) != (1, 1):
            found.add(f"{row.name} has another policy than its tenant's")
    return found


@pytest.fixture
async def owner(database: DatabaseUrls) -> AsyncIterator[AsyncConnection]:
    """As the owner of all tables, in a transaction that is rolled back."""
    engine = create_async_engine(async_url(database.owner))
    async with engine.connect() as connection:
        yield connection
        await connection.rollback()
    await engine.dispose()


@pytest.fixture
async def app(database: DatabaseUrls) -> AsyncIterator[AsyncConnection]:
    engine = create_async_engine(async_url(database.app))
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


async def walled(connection: AsyncConnection) -> list[tuple[str, str]]:
    """(table, its tenant's column) of all that the application's role can read."""
    rows = await connection.execute(text(RELATIONS), {"bound": BOUND})
    return [(row.name, row.tenant) for row in rows if row.tenant and row.reached and not row.part]


async def test_there_is_no_way_past_the_wall(owner: AsyncConnection) -> None:
    assert await holes(owner) == set()
    assert len(await walled(owner)) >= 15


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("CREATE TABLE stray (tenant_id uuid)", "row security of stray is not forced"),
        ("ALTER TABLE members NO FORCE ROW LEVEL SECURITY", "row security of members is not forced"),
        ("ALTER TABLE aliases DISABLE ROW LEVEL SECURITY", "row security of aliases is not forced"),
        ("DROP POLICY tenant ON api_keys", "api_keys has another policy than its tenant's"),
        (
            "CREATE POLICY all_of_it ON adapters TO PUBLIC USING (true)",
            "adapters has another policy than its tenant's",
        ),
        (
            "ALTER POLICY tenant ON adapters WITH CHECK (true)",
            "adapters has another policy than its tenant's",
        ),
        (
            "GRANT SELECT (tenant_id) ON usage_staging TO motet_app",
            "usage_staging has no wall and can be reached",
        ),
        (
            "GRANT SELECT ON usage_ledger_default TO motet_app",
            "the partition usage_ledger_default can be read past its parent",
        ),
        ("GRANT TRUNCATE ON api_keys TO motet_app", "api_keys can be emptied or referenced past its rows"),
        (
            "CREATE VIEW every_key AS SELECT * FROM api_keys; GRANT SELECT ON every_key TO motet_app",
            "every_key shows what its owner sees",
        ),
        (
            "CREATE FUNCTION leak() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
            {
                "the role may run leak as its owner",
                "anybody may run leak as its owner",
                "others choose what leak finds under a name",
            },
        ),
        ("GRANT CREATE ON SCHEMA public TO motet_app", "the role may make tables"),
    ],
)
async def test_each_way_past_it_would_be_found(
    owner: AsyncConnection, statement: str, found: str | set[str]
) -> None:
    for each in statement.split("; "):
        await owner.execute(text(each))
    assert await holes(owner) == ({found} if isinstance(found, str) else found)


async def test_without_a_tenant_no_table_shows_a_row(
    app: AsyncConnection, db: Database, tenant: TenantId
) -> None:
    """Nor with one that nobody is, nor with an empty one."""
    await add_key(db, tenant)
    async with app.begin():
        tables = await walled(app)
    for given in (None, "", str(uuid4())):
        async with app.begin():
            if given is not None:
                await app.execute(text("SELECT set_config('motet.tenant', :tenant, true)"), {"tenant": given})
            for table, _ in tables:
                count = (await app.execute(text(f"SELECT count(*) FROM {table}"))).scalar_one()
                assert count == 0, (table, given)
    async with db.system_reader() as session:  # there was something to see
        assert (await session.execute(text("SELECT count(*) FROM api_keys"))).scalar_one() > 0


OWNERS_VIEW = {
    "adapter_shares": "tenant_id <> :me AND (recipient_id IS NULL OR recipient_id = :me)",
    "adapters": "tenant_id <> :me AND id IN (SELECT adapter_id FROM adapter_shares)",
    "adapter_versions": "tenant_id <> :me AND adapter_id IN (SELECT adapter_id FROM adapter_shares)",
    "aliases": "tenant_id <> :me AND adapter_id IN (SELECT adapter_id FROM adapter_shares)",
    "usage_rollups": "owner_id = :me AND tenant_id <> :me",
    "tenants": "id <> :me AND (id IN (SELECT tenant_id FROM adapter_shares)"
    " OR id IN (SELECT tenant_id FROM usage_rollups))",
    "usage_arrivals": "true",
}
"""What the owner of the functions that tell of shares sees of each table, when a tenant `me` is set."""


async def test_functions_that_tell_of_shares_see_no_more_than_is_shared(
    owner: AsyncConnection, tenant: TenantId
) -> None:
    policies = await owner.execute(
        text("SELECT polrelid::regclass::text, polcmd::text FROM pg_policy WHERE polname = 'shared'")
    )
    assert {(name, command) for name, command in policies} == {(name, "r") for name in OWNERS_VIEW}
    for me in ("", str(tenant)):
        await owner.execute(text("SELECT set_config('motet.tenant', :me, true)"), {"me": me})
        for table, wanted in OWNERS_VIEW.items():
            beyond = f"SELECT count(*) FROM {table} WHERE ({wanted}) IS NOT TRUE"
            given = {"me": tenant} if ":me" in wanted else {}
            assert (await owner.execute(text(beyond), given)).scalar_one() == 0, (table, me)
        if not me:
            seen = await owner.execute(text("SELECT count(*) FROM adapter_shares"))
            assert seen.scalar_one() == 0


async def test_with_a_tenant_no_table_shows_anothers_row(app: AsyncConnection, tenant: TenantId) -> None:
    async with app.begin():
        await app.execute(text("SELECT set_config('motet.tenant', :tenant, true)"), {"tenant": str(tenant)})
        for table, column in await walled(app):
            others = text(f"SELECT count(*) FROM {table} WHERE {column} IS DISTINCT FROM :tenant")
            assert (await app.execute(others, {"tenant": tenant})).scalar_one() == 0, table
        assert (await app.execute(text("SELECT count(*) FROM tenants"))).scalar_one() == 1


async def test_a_gateway_of_before_sees_no_account_of_a_member(database: DatabaseUrls, db: Database) -> None:
    """It would take one for an operator's (migrations/versions/0052_members.py)."""
    async with db.system_session() as session:
        account = uuid4()
        await session.execute(
            text(
                "INSERT INTO admins (id, email, password_hash, is_operator) VALUES (:id, :email, '', false)"
            ),
            {"id": account, "email": f"{account}@example.com"},
        )
    engine = create_async_engine(async_url(database.system))
    async with engine.connect() as before:
        count = await before.execute(text("SELECT count(*) FROM admins WHERE id = :id"), {"id": account})
        assert count.scalar_one() == 0
    await engine.dispose()
