"""A worker's usage journal: what makes a finished request durable before its client sees the end.

Segments `{worker}-{number}.jsonl` lie in the journal folder. The live worker holds a lock (flock) on each of
its segments until it is drained; the kernel frees it when the worker dies, and then control may drain it. A
segment is locked before it gets its name, so none is ever seen unlocked while its worker lives. Appends of
many requests share one fdatasync, which runs in a thread.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import structlog

from gateway.ids import uuid7
from gateway.usage.event import UsageEvent, encode_line
from gateway.usage.metrics import JOURNAL_BYTES, JOURNAL_SYNC

log = structlog.get_logger(__name__)

SUFFIX = ".jsonl"
MAX_UNWRITTEN = 10_000
"""Events kept in memory that the disk refused; beyond it the engines' journals tell of them."""


class JournalFailed(Exception):
    """The line could not be made durable: a full or broken disk. The request must not look finished."""


@dataclass(slots=True)
class Segment:
    """One file, locked by its worker. `size` counts bytes written, `unsynced` lines that wait for the
    disk."""

    path: Path
    fd: int
    size: int = 0
    unsynced: int = 0

    @classmethod
    def create(cls, folder: Path, name: str) -> Segment:
        folder.mkdir(parents=True, exist_ok=True)  # also when somebody removed it under us
        unlocked = folder / f".{name}.new"
        fd = os.open(unlocked, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        path = folder / f"{name}{SUFFIX}"
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unlocked.rename(path)
            _sync_directory(folder)
        except OSError:
            for left in (unlocked, path):
                left.unlink(missing_ok=True)
            os.close(fd)
            raise
        return cls(path, fd)

    def remove(self) -> None:
        """After its rows are committed: first the name, then the lock."""
        self.path.unlink(missing_ok=True)
        os.close(self.fd)


class Journal:
    """Owned by one worker's event loop. `append` returns when the line is on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.worker = uuid7().hex
        self._number = 0
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="usage-journal")
        self._segment = self._new_segment()
        self._pending: list[tuple[Segment, asyncio.Future[None]]] = []
        self._syncing: asyncio.Task[None] | None = None
        self._full: list[Segment] = []
        self.unwritten: list[UsageEvent] = []

    @property
    def is_drained(self) -> bool:
        """Whether all that was rotated away is in the ledger, and nothing waits in memory."""
        return not self._full and not self.unwritten

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that is not in the ledger."""
        return self.is_drained and not self._segment.size

    def keep(self, event: UsageEvent) -> None:
        """Remembers the end of an attempt whose line the disk refused, for the next drain."""
        if len(self.unwritten) < MAX_UNWRITTEN:
            self.unwritten.append(event)

    async def append(self, event: UsageEvent) -> None:
        """Raises `JournalFailed`."""
        line = encode_line(event)
        segment = self._segment
        try:
            _write(segment, line)
        except OSError as error:
            raise JournalFailed(str(error)) from error
        segment.unsynced += 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((segment, done))
        if self._syncing is None:
            self._syncing = asyncio.create_task(self._sync(), name="usage-journal-sync")
        await done

    async def _sync(self) -> None:
        """One fdatasync for all that was written before it; runs on while lines keep coming."""
        loop = asyncio.get_running_loop()
        while self._pending:
            batch, self._pending = self._pending, []
            error: JournalFailed | None = None
            with JOURNAL_SYNC.time():
                for fd in {segment.fd for segment, _ in batch}:
                    try:
                        await loop.run_in_executor(self._thread, os.fdatasync, fd)
                    except OSError as failure:
                        log.critical("usage_journal_sync_failed", reason=str(failure))
                        error = JournalFailed(str(failure))
            _tell(batch, error)
        self._syncing = None

    def rotate(self) -> list[Segment]:
        """Closes the current segment, if it holds anything, and gives those that are ready to be drained.

        They stay locked; the caller removes each (`forget`) once its rows are committed. Raises OSError when
        the disk takes no other segment.
        """
        if self._segment.size:
            full, self._segment = self._segment, self._new_segment()
            self._full.append(full)
        return self.ready

    @property
    def ready(self) -> list[Segment]:
        """Closed, and on disk."""
        return [segment for segment in self._full if not segment.unsynced]

    def forget(self, segment: Segment) -> None:
        self._full.remove(segment)
        segment.remove()

    async def close(self) -> None:
        """Frees the locks; what is left is control's to drain. An empty segment is removed."""
        if self._syncing is not None:
            await asyncio.shield(self._syncing)
        self._thread.shutdown()
        for segment in self._full:
            os.close(segment.fd)
        if self._segment.size:
            os.close(self._segment.fd)
        else:
            self._segment.remove()

    def _new_segment(self) -> Segment:
        self._number += 1
        return Segment.create(self.folder, f"{self.worker}-{self._number:06d}")


def _sync_directory(folder: Path) -> None:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write(segment: Segment, line: bytes) -> None:
    """The whole line, or none of it: what a short write left is cut off again."""
    written = os.write(segment.fd, line)
    if written < len(line):
        os.ftruncate(segment.fd, segment.size)
        raise OSError("the journal's disk is full")
    segment.size += written
    JOURNAL_BYTES.inc(written)


def _tell(batch: list[tuple[Segment, asyncio.Future[None]]], error: JournalFailed | None) -> None:
    for segment, done in batch:
        segment.unsynced -= 1
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
