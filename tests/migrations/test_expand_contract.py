"""What a migration may do while the release before it still runs: add. What takes something away is the
contract of an earlier expand, and says so:

    contract_of = "0042"  # the migration since whose release nobody needs it any more
"""

from __future__ import annotations

import importlib
import io
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from typer.testing import CliRunner

import migrations
from deploy import migrate
from deploy.local.services import DatabaseUrls, EmbeddedPostgres
from gateway.models import Base
from tests.migrations.test_migrations import inventory, on_database

VERSIONS = Path(migrations.__file__).parent / "versions"
NAMES = sorted(path.stem for path in VERSIONS.glob("[0-9]*.py"))

TAKES_AWAY = [
    r"\bDROP TABLE (?:IF EXISTS )?(?P<table>\w+)",
    r"\bALTER TABLE (?P<table>\w+)\b[^;]*\bDROP (?:COLUMN|CONSTRAINT)\b",
    r"\bALTER TABLE (?P<table>\w+)\b[^;]*\bRENAME\b",
    r"\bALTER TABLE (?P<table>\w+)\b[^;]*\bALTER (?:COLUMN )?\w+ (?:SET NOT NULL|DROP DEFAULT)\b",
    r"\bALTER TABLE (?P<table>\w+)\b[^;]*\bALTER (?:COLUMN )?\w+ (?:SET DATA )?TYPE\b",
    r"\bCREATE UNIQUE INDEX \w+ ON (?P<table>\w+)",
    r"\bDROP (?:POLICY|TRIGGER) \w+ ON (?P<table>\w+)",
    r"\bDROP (?P<table>FUNCTION|VIEW|INDEX|SEQUENCE|TYPE)\b",
    r"\bREVOKE\b(?![^;]*FROM PUBLIC)[^;]*\bON (?P<table>\w+)",
    r"(?:^|;\s*)TRUNCATE (?:TABLE )?(?P<table>\w+)",
]


WIDENED = re.compile(
    r"ALTER TABLE \w+ DROP CONSTRAINT (?P<name>\w+),"
    r"\s*ADD CONSTRAINT (?P=name) CHECK \(\w+ IN \((?P<values>[^()]*)\)\)"
)


def values_of(listed: str) -> set[str]:
    return set(re.findall(r"'([^']*)'", listed))


def without_widenings(statements: str, earlier: str) -> str:
    """But for checks of a column's values that allow more from now on than the `earlier` migrations did."""

    def replaced(found: re.Match[str]) -> str:
        before = re.findall(rf"CONSTRAINT {found['name']} CHECK \(\w+ IN \(([^()]*)\)\)", earlier)
        wider = bool(before) and values_of(before[-1]) <= values_of(found["values"])
        return "" if wider else found[0]

    return WIDENED.sub(replaced, statements)


def takes_away(statements: str, earlier: str = "") -> list[str]:
    """Statements that the release before can't live with, but for tables that the migration made itself, and
    constraints of columns that it added: the release before never writes those. `earlier`: the migrations
    before."""
    statements = without_widenings(statements, earlier)
    made = set(re.findall(r"\bCREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(\w+)", statements))
    made |= set(re.findall(r"\bTABLE IF NOT EXISTS (\w+)", statements))
    plain = re.sub(r"(?s)\$\$.*?\$\$", "", statements)  # bodies of functions
    found = []
    for pattern in TAKES_AWAY:
        for match in re.finditer(pattern, plain, re.IGNORECASE):
            if match["table"] not in made:
                found.append(" ".join(match[0].split()))
    for table, rest in re.findall(r"\bALTER TABLE (\w+)\b([^;]*)", plain, re.IGNORECASE):
        if table not in made:
            found += constraints_on_old_columns(table, rest)
        for column in re.findall(r"\bADD COLUMN\b(?:[^,(]|\([^)]*\))*", rest, re.IGNORECASE):
            required = re.search(r"\bNOT NULL\b|\bPRIMARY KEY\b", column, re.IGNORECASE)
            if table not in made and required and not re.search(r"\bDEFAULT\b", column, re.IGNORECASE):
                found.append(" ".join(column.split()))
    return found


def constraints_on_old_columns(table: str, clauses: str) -> list[str]:
    added = set(re.findall(r"\bADD COLUMN (?:IF NOT EXISTS )?(\w+)", clauses, re.IGNORECASE))
    known = (
        {column.name for column in Base.metadata.tables[table].c} if table in Base.metadata.tables else set()
    )
    constraint = (
        r"\bADD (?:CONSTRAINT \w+ )?(?:CHECK|UNIQUE|PRIMARY KEY|FOREIGN KEY|EXCLUDE)\b(?:[^,(]|\([^;]*?\))*"
    )
    found = re.findall(constraint, clauses, re.IGNORECASE)
    return [
        " ".join(each.split())
        for each in found
        if not added or (set(re.findall(r"\w+", each)) & known) - added
    ]


def statements_of(name: str) -> tuple[ModuleType, str]:
    """The migration's way up as SQL, without a database."""
    module = importlib.import_module(f"migrations.versions.{name}")
    written = io.StringIO()
    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": written}
    )
    with Operations.context(context):
        module.upgrade()
    return module, written.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_a_migration_only_adds_unless_it_is_the_contract_of_an_earlier_one(name: str) -> None:
    module, statements = statements_of(name)
    before = "".join(statements_of(each)[1] for each in NAMES[: NAMES.index(name)])
    found = takes_away(statements, before)
    contract_of = getattr(module, "contract_of", None)
    if contract_of is None:
        assert not found, f"{name} takes away what the release before needs"
        return
    assert found, f"{name} calls itself a contract, and takes nothing away"
    script = ScriptDirectory(str(VERSIONS.parent))
    ancestors = {each.revision for each in script.iterate_revisions(module.down_revision, "base")}
    assert contract_of in ancestors, f"{name} is the contract of {contract_of}, which is not before it"
    assert "UPDATE schema_support SET oldest_release" in statements, "so that older releases are told"


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("ALTER TABLE t ADD COLUMN a text", True),
        ("ALTER TABLE t ADD COLUMN a text NOT NULL DEFAULT 'x', ADD COLUMN b bigint", True),
        ("ALTER TABLE t ADD COLUMN a text NOT NULL DEFAULT 'x' CONSTRAINT c CHECK (a IN ('x', 'y'))", True),
        ("ALTER TABLE t ADD COLUMN a text NOT NULL", False),
        ("ALTER TABLE t ADD COLUMN a numeric(38, 0) NOT NULL, ADD COLUMN b text DEFAULT 'x'", False),
        ("ALTER TABLE t DROP COLUMN a", False),
        ("ALTER TABLE t ADD COLUMN b text, DROP COLUMN a", False),
        ("ALTER TABLE t RENAME COLUMN a TO b", False),
        ("ALTER TABLE t RENAME TO u", False),
        ("ALTER TABLE t ALTER COLUMN a SET NOT NULL", False),
        ("ALTER TABLE t ALTER a TYPE bigint", False),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0)", False),
        ("ALTER TABLE tenants ADD COLUMN lifecycle text, ADD CONSTRAINT c CHECK (lifecycle > 'a')", True),
        ("ALTER TABLE tenants ADD COLUMN lifecycle text, ADD CONSTRAINT c CHECK (name > lifecycle)", False),
        ("DROP TABLE t", False),
        ("CREATE TABLE t (a text); ALTER TABLE t DROP COLUMN a", True),
        ("CREATE UNIQUE INDEX i ON t (a)", False),
        ("CREATE INDEX i ON t (a)", True),
        ("REVOKE SELECT ON t FROM motet_app", False),
        ("REVOKE ALL ON FUNCTION f(int) FROM PUBLIC", True),
        ("DROP FUNCTION f(int)", False),
        ("CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS $$ DROP TABLE t $$", True),
        ("ALTER TABLE t NO FORCE ROW LEVEL SECURITY", True),
    ],
)
def test_the_rule_itself(statement: str, allowed: bool) -> None:
    assert (takes_away(statement) == []) is allowed


@pytest.mark.parametrize(
    ("values", "allowed"), [("'a', 'b', 'c'", True), ("'b', 'a'", True), ("'a', 'c'", False)]
)
def test_a_check_may_come_to_allow_more(values: str, allowed: bool) -> None:
    earlier = "CREATE TABLE t (s text CONSTRAINT t_s CHECK (s IN ('a', 'b')))"
    widened = f"ALTER TABLE t DROP CONSTRAINT t_s, ADD CONSTRAINT t_s CHECK (s IN ({values}))"
    assert (takes_away(widened, earlier) == []) is allowed
    assert takes_away(widened)


@pytest.fixture(scope="module")
def empty_database() -> Iterator[DatabaseUrls]:
    with tempfile.TemporaryDirectory(prefix="motet-steps-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(Path(folder))
        yield server.start()
        server.stop()


def shape(connection: Connection) -> set[tuple[str, ...]]:
    """All that a migration may change: besides what there is, columns, constraints, triggers and grants."""
    rows = connection.execute(
        text(
            """
            SELECT 'column', table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable
                   || ' ' || coalesce(column_default, '-')
            FROM information_schema.columns WHERE table_schema = 'public'
            UNION ALL
            SELECT 'constraint', conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
            FROM pg_constraint WHERE connamespace = 'public'::regnamespace
            UNION ALL
            SELECT 'trigger', tgrelid::regclass || ' ' || tgname FROM pg_trigger WHERE NOT tgisinternal
            UNION ALL
            SELECT 'grant', table_name || ' ' || grantee || ' ' || privilege_type
            FROM information_schema.role_table_grants WHERE table_schema = 'public'
            UNION ALL
            SELECT 'column grant', table_name || '.' || column_name || ' ' || grantee || ' ' || privilege_type
            FROM information_schema.role_column_grants WHERE table_schema = 'public'
            UNION ALL
            SELECT 'row security', relname || relrowsecurity::text || relforcerowsecurity::text
            FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
            """
        )
    )
    return {tuple(row) for row in rows} | inventory(connection)


def test_each_step_goes_down_and_up_again(empty_database: DatabaseUrls) -> None:
    owner = empty_database.owner
    script = ScriptDirectory(str(VERSIONS.parent))
    steps = [each.revision for each in reversed(list(script.walk_revisions()))]
    assert len(steps) == len(NAMES)  # one line, and every file in it
    before: set[tuple[str, ...]] = set()
    for number, revision in enumerate(steps):
        migrations.upgrade(owner, revision)
        after = on_database(owner, shape)
        if number > 0:
            migrations.downgrade(owner, steps[number - 1])
            assert on_database(owner, shape) == before, f"down from {revision}"
            migrations.upgrade(owner, revision)
            assert on_database(owner, shape) == after, f"up to {revision} again"
        before = after


def test_a_release_older_than_the_database_says_so_and_touches_nothing(empty_database: DatabaseUrls) -> None:
    owner = empty_database.owner
    migrations.upgrade(owner)

    def say(revision: str) -> None:
        def write(connection: Connection) -> None:
            connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": revision})
            connection.commit()

        on_database(owner, write)

    before = on_database(owner, shape)
    say("9999")
    try:
        done = CliRunner().invoke(migrate.app, ["--database-url", owner])
        assert done.exit_code == 1
        assert "9999" in done.stderr
        assert on_database(owner, shape) == before
    finally:
        say(migrations.head())


def test_the_log_of_before_there_were_chains_is_chained(empty_database: DatabaseUrls) -> None:
    owner, system = empty_database.owner, empty_database.system
    migrations.downgrade(owner, "0024")
    add = text(
        "INSERT INTO audit_events (id, tenant_id, actor, action, target, details) SELECT"
        " gen_random_uuid(), CASE WHEN n % 2 = 0 THEN '00000000-0000-0000-0000-000000000007'::uuid END,"
        " 'a', 'b.c', n::text, jsonb_build_object('n', n) FROM generate_series(1, 10) n"
    )

    def write(connection: Connection) -> None:
        connection.execute(add)
        connection.commit()

    def chains(connection: Connection) -> list[tuple[int, int]]:
        found = connection.execute(
            text("SELECT min(seq), max(seq) FROM audit_links GROUP BY chain ORDER BY chain")
        )
        return [(low, high) for low, high in found]

    on_database(system, write)
    migrations.upgrade(owner)
    assert on_database(system, chains) == [(1, 5), (1, 5)]
    on_database(system, write)
    assert on_database(system, chains) == [(1, 10), (1, 10)]
