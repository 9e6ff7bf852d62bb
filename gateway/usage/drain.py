"""Journals into the ledger: a worker drains its own segments, control those of workers that died.

A segment is removed only after its rows are committed; rows that are there already are left as they are, so
that a drain may be repeated at any point.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec
import structlog

from gateway.db import Database
from gateway.errors import Unavailable
from gateway.usage.event import UsageEvent, decode_lines, sound_lines
from gateway.usage.journal import SUFFIX, Journal, Segment
from gateway.usage.metrics import LEDGER_LAG, LEDGER_ROWS
from gateway.usage.repository import insert_events
from gateway.usage.watermark import WorkerMark

log = structlog.get_logger(__name__)

DRAIN_S = 1.0
MAX_BATCH = 5_000
DAMAGED = ".damaged"


async def drain_own(db: Database, journal: Journal) -> int:
    """Moves what this worker finished into the ledger; gives the number of rows added. Raises `Unavailable`,
    and OSError when the disk has no room for another segment."""
    added = await _drain_unwritten(db, journal)
    added += await _drain_segments(db, journal, journal.ready)  # makes room on a full disk for the next one
    added += await _drain_segments(db, journal, journal.rotate())
    LEDGER_LAG.set(0)
    return added


async def _drain_segments(db: Database, journal: Journal, segments: Iterable[Segment]) -> int:
    added = 0
    for segment in segments:
        added += await _drain_file(db, segment.path, "worker")
        journal.forget(segment)
    return added


async def _drain_unwritten(db: Database, journal: Journal) -> int:
    """What the disk refused goes straight from memory, before the reconciler takes it for a dead worker's."""
    events = journal.unwritten[:MAX_BATCH]
    if not events:
        return 0
    async with db.system_session() as session:
        added = await insert_events(session, events)
    del journal.unwritten[: len(events)]
    LEDGER_ROWS.labels("worker").inc(added)
    return added


async def run_drain(db: Database, journal: Journal) -> None:
    """Drains every second until cancelled; a database that is away, or a disk that is full, only makes the
    lag grow."""
    failing_since: datetime | None = None
    mark = WorkerMark(db, journal)
    while True:
        await asyncio.sleep(DRAIN_S)
        began = datetime.now(UTC)
        try:
            await drain_own(db, journal)
            await mark.tell(began)
            failing_since = None
        except (Unavailable, OSError) as error:
            failing_since = failing_since or datetime.now(UTC)
            LEDGER_LAG.set((datetime.now(UTC) - failing_since).total_seconds() + DRAIN_S)
            log.warning("ledger_drain_failed", reason=str(error))


async def drain_dead(db: Database, folder: Path) -> int:
    """Moves what dead workers left behind into the ledger; segments of live ones are locked and skipped."""
    added = 0
    for path in _segments(folder):
        with _locked(path) as free:
            if free:
                added += await _drain_file(db, path, "control")
                path.unlink(missing_ok=True)
    return added


async def journalled(folder: Path) -> set[tuple[UUID, int]]:
    """The attempts that lie in any segment, of live workers too: their rows are on their way."""
    events = await asyncio.to_thread(_on_disk, folder)
    return {(event.request_id, event.attempt) for event in events}


async def journalled_by(folder: Path, tenant: UUID, request_id: UUID) -> bool:
    """Whether an attempt of that tenant's request lies in any segment."""
    events = await asyncio.to_thread(_on_disk, folder)
    return any((event.request_id, event.tenant_id) == (request_id, tenant) for event in events)


def _on_disk(folder: Path) -> list[UsageEvent]:
    found: list[UsageEvent] = []
    for path in _segments(folder):
        try:
            found += sound_lines(path.read_bytes())[0]
        except FileNotFoundError:
            continue  # drained meanwhile
    return found


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether nobody holds the segment; while the block runs, we do."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


async def _drain_file(db: Database, path: Path, by: str) -> int:
    try:
        data = await asyncio.to_thread(path.read_bytes)
    except FileNotFoundError:
        return 0
    events = _readable(path, data)
    added = 0
    for start in range(0, len(events), MAX_BATCH):
        async with db.system_session() as session:
            added += await insert_events(session, events[start : start + MAX_BATCH])
    LEDGER_ROWS.labels(by).inc(added)
    return added


def _readable(path: Path, data: bytes) -> list[UsageEvent]:
    """The events; a torn tail is normal after a kill (the request had not been answered: the reconciler adds
    it).

    A damaged file is kept aside for a person, and its sound lines are taken; the reconciler restores the
    others from the engines' journals.
    """
    try:
        events, torn = decode_lines(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        kept = path.with_suffix(DAMAGED)
        kept.write_bytes(data)
        sound, broken = sound_lines(data)
        about = {"path": str(path), "kept": str(kept), "num_sound": len(sound), "num_broken": broken}
        log.critical("usage_journal_damaged", reason=str(error), **about)
        return sound
    if torn:
        log.info("usage_journal_torn_tail", path=str(path), num_bytes=torn)
    return events
