"""The usage journal: one JSON line for each attempt that reached the core, in files that only grow.

A line is written (`write(2)`, complete) before the attempt's `Ended` leaves the core, so a kill of the
process loses none. A thread calls `fdatasync` at most `SYNC_EVERY_S` after a line was written, so a power cut
loses the last 50 ms and the time of one sync. At start, a torn tail is cut off and `n` goes on where it was.

Segments are named for their first `n`. A segment is deleted once it is older than `KEEP_S` and at least
`KEEP_LINES` newer lines remain, so what the disk holds is bounded by a week of traffic or that many lines,
whichever is more.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
import uuid
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from engine.core.protocol import Outcome, Purpose, ServiceClass, Tier

SEGMENT_BYTES: Final = 16 * 1024 * 1024
KEEP_S: Final = 8 * 24 * 3600.0
KEEP_LINES: Final = 1_000_000
SYNC_EVERY_S: Final = 0.05
ROOM_BYTES: Final = 1024 * 1024  # a disk that refused a line is asked again once it has so much
ID_FILE: Final = "journal_id"
_LOCK_FILE: Final = "lock"

log = logging.getLogger(__name__)


class JournalError(Exception):
    """The journal can't be opened or written: nothing can be billed, so nothing may be served."""


class JournalFull(JournalError):
    """The disk did not take this line; nothing is lost of those before, and it may take the next."""


class JournalLine(msgspec.Struct, frozen=True, kw_only=True):
    """One ended attempt (docs/ARCHITECTURE.md, seams)."""

    n: int  # 1, 2, ... without a gap
    request: str
    attempt: int
    tenant: str
    key: str
    artefact: str | None  # None = base
    owner: str | None
    version: str
    purpose: Purpose
    outcome: Outcome
    prompt: int
    completion: int
    cached: int
    queue_ms: float
    load_ms: float
    ttft_ms: float | None
    total_ms: float
    tier: Tier
    ended_at: datetime  # UTC
    service_class: ServiceClass = ServiceClass.STANDARD  # its price may depend on it


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(JournalLine)


def segments(directory: Path) -> list[tuple[int, Path]]:
    """(first n, file) of each segment, oldest first."""
    found = [(int(path.stem.removeprefix("segment-")), path) for path in directory.glob("segment-*.jsonl")]
    return sorted(found)


class Journal:
    """The writer. One process at a time holds a directory; `append` is called from the step thread only."""

    def __init__(
        self, directory: Path, *, segment_bytes: int = SEGMENT_BYTES, keep_s: float = KEEP_S
    ) -> None:
        """Opens or creates; raises `JournalError`."""
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._keep_s = keep_s
        self._dirty = threading.Event()
        self._closing = threading.Event()
        self._sync_lock = threading.Lock()  # guards the descriptor while it is swapped
        self._failed: OSError | None = None
        self._full = False
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(directory / _LOCK_FILE)
            self.journal_id, self.last_n, path = _recover(directory)
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._size = os.fstat(self._file).st_size
            _sync_directory(directory)
        except OSError as error:
            raise JournalError(f"The usage journal in {directory} can't be opened: {error}") from error
        self._thread = threading.Thread(target=self._sync_forever, name="journal-sync", daemon=True)
        self._thread.start()

    def append(self, line: JournalLine) -> None:
        """Writes the next line; its `n` must be `last_n + 1`. Raises `JournalFull` or `JournalError`, having
        written nothing."""
        assert line.n == self.last_n + 1, "lines are numbered without a gap"
        if self._failed is not None:
            raise JournalError(f"The usage journal can't be synced: {self._failed}")
        data = _ENCODER.encode(line) + b"\n"
        try:
            if self._size and self._size + len(data) > self._segment_bytes:
                self._rotate(line.n)
            self._write(data)
        except OSError as error:
            self._full = True
            raise JournalFull(f"The usage journal can't be written: {error}") from error
        self._full = False
        self.last_n = line.n
        self._dirty.set()

    @property
    def is_full(self) -> bool:
        """Whether the last line was refused, and the disk has no room yet."""
        if self._full:
            disk = os.fstatvfs(self._file)
            self._full = disk.f_bavail * disk.f_frsize < ROOM_BYTES
        return self._full

    def close(self) -> None:
        """Syncs what was written and lets go of the directory."""
        self._closing.set()
        self._dirty.set()
        self._thread.join()
        os.close(self._file)
        os.close(self._lock)

    def _write(self, data: bytes) -> None:
        if os.write(self._file, data) != len(data):
            os.ftruncate(self._file, self._size)
            raise OSError("the disk is full")
        self._size += len(data)

    def _rotate(self, first_n: int) -> None:
        path = self._directory / f"segment-{first_n:020d}.jsonl"
        fresh = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        with self._sync_lock:
            try:
                os.fdatasync(self._file)
            except OSError as error:
                self._failed = error
                raise
            os.close(self._file)
            self._file = fresh
            self._size = 0
        _sync_directory(self._directory)
        self._delete_old(first_n)

    def _delete_old(self, next_n: int) -> None:
        kept = segments(self._directory)
        for (_, path), (following_n, _) in pairwise(kept):
            if next_n - following_n < KEEP_LINES or time.time() - path.stat().st_mtime < self._keep_s:
                return
            log.info("deleting journal segment %s", path.name)
            path.unlink()

    def _sync_forever(self) -> None:
        while not self._closing.is_set():
            self._dirty.wait()
            self._dirty.clear()
            try:
                with self._sync_lock:
                    os.fdatasync(self._file)
            except OSError as error:
                self._failed = error  # the next append raises it
                return
            self._closing.wait(SYNC_EVERY_S)
        with self._sync_lock:
            os.fdatasync(self._file)


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OSError("another engine uses it") from None
    return descriptor


def _recover(directory: Path) -> tuple[str, int, Path]:
    """The journal's id, the last `n` that is whole, and the segment to go on with."""
    id_file = directory / ID_FILE
    known = segments(directory)
    if not known:
        return _new_id(id_file), 0, directory / f"segment-{1:020d}.jsonl"
    first_n, path = known[-1]
    found = id_file.read_text().strip() if id_file.exists() else ""
    return found or _new_id(id_file), _repair(path, first_n), path


def _new_id(path: Path) -> str:
    """Also for lines whose id was lost: who follows the journal reads all of them again, and knows most."""
    journal_id = str(uuid.uuid4())
    temporary = path.with_suffix(".new")
    with temporary.open("w") as file:
        file.write(journal_id)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return journal_id


def _repair(path: Path, first_n: int) -> int:
    """Cuts off whatever follows the last whole line; returns that line's `n`. Damage before it stays: what
    came after is worth more than a file without a flaw."""
    n, end, size = first_n - 1, 0, 0
    with path.open("rb+") as file:
        for data in file:
            size += len(data)
            try:
                found = _DECODER.decode(data).n if data.endswith(b"\n") else 0
            except msgspec.MsgspecError:
                found = 0
            if found > n:
                n, end = found, size
        if end < size:
            log.warning("cutting a torn tail off %s at byte %d", path.name, end)
            file.truncate(end)
    return n


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def now_utc() -> datetime:
    return datetime.now(UTC)
