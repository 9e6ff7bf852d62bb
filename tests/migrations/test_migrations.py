"""The whole way up, down and up again on a real server, and tables that equal the models."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

import migrations
from deploy.local.services import DatabaseUrls, EmbeddedPostgres
from gateway.models import Base
from migrations import async_url


@pytest.fixture(scope="module")
def empty_database() -> Iterator[DatabaseUrls]:
    """A server of its own: going down would pull the tables from under every other test."""
    with tempfile.TemporaryDirectory(prefix="motet-migrations-", ignore_cleanup_errors=True) as folder:
        server = EmbeddedPostgres(Path(folder))
        yield server.start()
        server.stop()


Answer = TypeVar("Answer")


def on_database(url: str, look: Callable[[Connection], Answer]) -> Answer:
    async def connect() -> Answer:
        engine = create_async_engine(async_url(url))
        async with engine.connect() as connection:
            answer = await connection.run_sync(look)
        await engine.dispose()
        return answer

    return asyncio.run(connect())


def inventory(connection: Connection) -> set[tuple[str, str]]:
    """All that a migration may make: relations, functions, policies, triggers of the schema."""
    rows = connection.execute(
        text(
            """
            SELECT 'relation', relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
              AND relname NOT LIKE 'alembic_version%'
            UNION SELECT 'function', proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
            UNION SELECT 'policy', tablename || '.' || policyname FROM pg_policies WHERE schemaname = 'public'
            """
        )
    )
    return {(kind, name) for kind, name in rows}


def test_up_down_and_up_again_leaves_nothing_behind(empty_database: DatabaseUrls) -> None:
    owner = empty_database.owner
    migrations.upgrade(owner)
    assert on_database(owner, migrations.current) == migrations.head()
    full = on_database(owner, inventory)
    assert ("relation", "usage_ledger") in full

    migrations.downgrade(owner)
    assert on_database(owner, migrations.current) is None
    assert on_database(owner, inventory) == set()

    migrations.upgrade(owner)
    assert on_database(owner, inventory) == full


def test_a_second_upgrade_changes_nothing(empty_database: DatabaseUrls) -> None:
    migrations.upgrade(empty_database.owner)
    before = on_database(empty_database.owner, inventory)
    migrations.upgrade(empty_database.owner)
    assert on_database(empty_database.owner, inventory) == before


def test_two_upgrades_at_once_both_succeed(empty_database: DatabaseUrls) -> None:
    migrations.downgrade(empty_database.owner)

    async def both() -> None:
        await asyncio.gather(*(migrations.migrate(empty_database.owner) for _ in range(2)))

    asyncio.run(both())
    assert on_database(empty_database.owner, migrations.current) == migrations.head()


def test_the_models_equal_the_tables(empty_database: DatabaseUrls) -> None:
    migrations.upgrade(empty_database.owner)

    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "compare_server_default": False,
                "include_name": lambda name, kind, _: kind != "table" or not _is_partition(name),
            },
        )
        return list(compare_metadata(context, Base.metadata))

    assert on_database(empty_database.owner, differences) == []


def test_usage_from_before_there_were_charges_is_taken_up(empty_database: DatabaseUrls) -> None:
    migrations.downgrade(empty_database.owner)
    migrations.upgrade(empty_database.owner, "0006")
    tenant, ended = UUID(int=7), datetime(2026, 1, 15, 12, 7, tzinfo=UTC)

    def add(connection: Connection) -> None:
        connection.execute(
            text(
                "INSERT INTO usage_ledger (request_id, attempt, tenant_id, key_id, base_id, source, purpose,"
                " outcome, prompt_tokens, completion_tokens, cached_tokens, billed_prompt_tokens,"
                " billed_completion_tokens, billed_cached_tokens, created_at, ended_at) VALUES"
                " (:id, 1, :tenant, 'k', 'b', 'engine', 'tenant', 'finished', 1, 1, 0, 1, 1, 0, :at, :at)"
            ),
            {"id": UUID(int=1), "tenant": tenant, "at": ended},
        )
        connection.commit()

    def marks(connection: Connection) -> list[tuple[Any, ...]]:
        found = connection.execute(text("SELECT tenant_id, bucket, earliest FROM usage_arrivals"))
        return [tuple(row) for row in found]

    on_database(empty_database.system, add)
    migrations.upgrade(empty_database.owner)
    assert on_database(empty_database.system, marks) == [(tenant, ended.replace(minute=0), ended)]


def _is_partition(name: str | None) -> bool:
    return name is not None and name.startswith(("usage_ledger_", "request_events_"))
