"""One leader among all control processes: whoever holds PostgreSQL's advisory lock. It dies with its
connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.db import Database, database_errors
from gateway.errors import Unavailable

log = structlog.get_logger(__name__)

LOCK: Final = 0x6D6F7465  # "mote"; any number no other advisory lock of this database uses
ASK_AGAIN_S: Final = 5.0


class Leadership:
    """Held while its connection lives; `confirm` before each round of jobs."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def confirm(self) -> None:
        """Raises `Unavailable` when the lock's connection is gone, and the lock with it."""
        with database_errors():
            await self._connection.execute(text("SELECT 1"))


@asynccontextmanager
async def leadership(db: Database) -> AsyncIterator[Leadership]:
    """Waits until this process leads. Raises `Unavailable` when the database can't be asked."""
    try:
        with database_errors():
            async with db.system_engine.connect() as plain:
                connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
                await _take(connection)
                log.info("control_leads")
                try:
                    yield Leadership(connection)
                finally:
                    await _unlock(connection)
    except OSError as error:
        raise Unavailable("The database cannot answer now.") from error


async def _take(connection: AsyncConnection) -> None:
    """Asks again and again rather than waiting in the server, where the statement would time out."""
    while True:
        if await connection.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LOCK}):
            return
        await asyncio.sleep(ASK_AGAIN_S)


async def _unlock(connection: AsyncConnection) -> None:
    """The connection goes back to a pool, so the lock must not stay with it: where it can't be given back,
    the connection is cut, and the server lets go of both."""
    if connection.invalidated:
        return
    try:
        await connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": LOCK})
    except (SQLAlchemyError, OSError):
        await connection.invalidate()
