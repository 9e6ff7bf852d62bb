"""What "complete until" says: the moment before which each request that ended is in the ledger.

Each worker tells, after a drain that left nothing behind, when that drain began: a row's `ended_at` is taken
and written to the journal without a pause between them, so all that ended before is in. The leader tells the
same of each engine's journal: up to where its lines have their rows. The earliest of all is the answer.

A worker that ends takes itself out of the way if it left nothing. One that died stays in it until control,
beside its disk, has drained what it left. A source that is
silent for `LOST_AFTER_S` is given up: its disk or its replica is gone, and what it knew with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.db import Database, SystemWrite
from gateway.ids import uuid7
from gateway.models import UsageDrain
from gateway.usage.journal import SUFFIX, Journal

log = structlog.get_logger(__name__)

TELL_S: Final = 3.0
LOST_AFTER_S: Final = 24 * 3_600.0
"""As long as an attempt waits for its count."""

FOLDER_ID: Final = ".journal-folder"


class WorkerMark:
    """One worker's part. `before` is taken when a drain begins, `tell` follows its end."""

    def __init__(self, db: Database, journal: Journal) -> None:
        self._db = db
        self._journal = journal
        self._told_at = -TELL_S

    async def tell(self, before: datetime) -> None:
        """Raises `Unavailable`, and OSError when the journal's folder is gone."""
        if not self._journal.is_drained or time.monotonic() - self._told_at < TELL_S:
            return
        folder = await asyncio.to_thread(folder_id, self._journal.folder)
        async with self._db.system_session() as session:
            await _tell(
                session, UsageDrain(source=self._journal.worker, kind="worker", folder=folder), before
            )
        self._told_at = time.monotonic()

    async def leave(self) -> None:
        """Of a worker that ends, once its journal is closed: one that left nothing there stands in nobody's
        way. Raises `Unavailable`; then, and for what it left, control does it."""
        if not self._journal.is_empty:
            return
        async with self._db.system_session() as session:
            await session.execute(delete(UsageDrain).where(UsageDrain.source == self._journal.worker))


async def tell_engine(session: SystemWrite, source: str, until: datetime) -> None:
    """All lines of this engine that ended before `until` have their rows."""
    await _tell(session, UsageDrain(source=source, kind="engine", folder=None), until)


async def _tell(session: SystemWrite, drain: UsageDrain, until: datetime) -> None:
    """Moves forward only."""
    new = insert(UsageDrain).values(
        source=drain.source, kind=drain.kind, folder=drain.folder, complete_until=until
    )
    await session.execute(
        new.on_conflict_do_update(
            index_elements=[UsageDrain.source],
            set_={
                "complete_until": func.greatest(UsageDrain.complete_until, new.excluded.complete_until),
                "updated_at": func.now(),
            },
        )
    )


async def workers_complete_until(session: AsyncSession) -> datetime | None:
    """The earliest of all workers, as far as they have told; None when there is none."""
    query = select(func.min(UsageDrain.complete_until)).where(UsageDrain.kind == "worker")
    found = await session.scalar(query)
    assert found is None or isinstance(found, datetime)
    return found


async def forget_drained(db: Database, folder: Path) -> int:
    """Takes dead workers out of the way whose segments in this folder are all drained. A worker that lives
    always has one. Raises `Unavailable` and OSError."""
    ours = await asyncio.to_thread(folder_id, folder)
    async with db.system_session() as session:
        query = select(UsageDrain.source).where(UsageDrain.folder == ours)
        known = set(await session.scalars(query))
        # Looked at after the query: whoever told before it has had its segment since.
        left = await asyncio.to_thread(_workers_with_segments, folder)
        gone = known - left
        if gone:
            await session.execute(delete(UsageDrain).where(UsageDrain.source.in_(sorted(gone))))
    return len(gone)


async def give_up_lost(session: SystemWrite) -> int:
    """Sources of which nobody has heard for a day."""
    old = UsageDrain.updated_at < func.now() - timedelta(seconds=LOST_AFTER_S)
    lost = list(await session.scalars(delete(UsageDrain).where(old).returning(UsageDrain.source)))
    for source in lost:
        log.error("usage_source_lost", source=source)
    return len(lost)


async def journals_complete_until(session: AsyncSession) -> datetime | None:
    """The earliest of all sources, ten seconds ago at most; None when there is none. A ledger row of before
    is visible to each later statement of the session."""
    found = await session.scalar(select(func.motet_journals_complete_until()))
    assert found is None or isinstance(found, datetime)
    return found


def folder_id(folder: Path) -> str:
    """Tells journal folders apart, whatever hosts and containers call them. Raises OSError."""
    path = folder / FOLDER_ID
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{FOLDER_ID}.{uuid7().hex}"
    fresh.write_text(uuid7().hex + "\n")
    with contextlib.suppress(FileExistsError):  # another process was first: its id is the folder's
        os.link(fresh, path)
    fresh.unlink()
    return path.read_text().strip()


def _workers_with_segments(folder: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in folder.glob(f"*{SUFFIX}")}
