"""Alembic migrations, run from code: `upgrade(owner_url)`. One reversible change a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import URL, Connection, make_url, pool
from sqlalchemy.ext.asyncio import create_async_engine

if TYPE_CHECKING:  # a worker asks which revision it was made for, and migrates nothing
    from alembic.config import Config
    from alembic.script import ScriptDirectory

LOCK = 0x6D6F7465745F6462  # advisory lock: two starts at once migrate one after the other

LOCK_WAIT_S = 30  # for a table that a running statement holds: others queue behind the wait, so it has an end


def upgrade(owner_url: str, revision: str = "head") -> None:
    """Bring the database to `revision` as `motet_owner`. Call outside an event loop; inside one, use
    `migrate`."""
    asyncio.run(migrate(owner_url, revision))


def downgrade(owner_url: str, revision: str = "base") -> None:
    asyncio.run(migrate(owner_url, revision, down=True))


async def migrate(owner_url: str, revision: str = "head", *, down: bool = False) -> None:
    """Upgrade (or downgrade) in one transaction, so that a failed change leaves nothing behind."""
    engine = create_async_engine(async_url(owner_url), poolclass=pool.NullPool)
    try:
        async with engine.begin() as connection:
            await connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({LOCK})")
            await connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'")
            await connection.run_sync(_run, revision, down)
    finally:
        await engine.dispose()


def async_url(url: str) -> URL:
    """Any `postgresql://…` form, spoken by asyncpg, which calls libpq's `sslmode` `ssl`."""
    made = make_url(url).set(drivername="postgresql+asyncpg")
    mode = made.query.get("sslmode")
    if mode is None:
        return made
    return made.difference_update_query(["sslmode"]).update_query_dict({"ssl": mode})


def _scripts() -> ScriptDirectory:
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    return ScriptDirectory.from_config(_config())


def head() -> str:
    """The revision that this code was written for."""
    revision = _scripts().get_current_head()
    assert revision is not None
    return revision


def knows(revision: str) -> bool:
    """Whether this code has a migration of that name, so that it knows what the schema was then."""
    return revision in {each.revision for each in _scripts().walk_revisions()}


def current(connection: Connection) -> str | None:
    """The revision that the database is at; None before the first migration."""
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415

    return MigrationContext.configure(connection).get_current_revision()


def _run(connection: Connection, revision: str, down: bool) -> None:
    from alembic import command  # noqa: PLC0415

    config = _config()
    config.attributes["connection"] = connection
    (command.downgrade if down else command.upgrade)(config, revision)


def _config() -> Config:
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    return config
