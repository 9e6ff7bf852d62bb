"""The files of uploads that come in over several requests, on the spool of one machine. Its calls block.

A file is locked (flock) by whoever writes or takes it, whichever worker that is, and the lock goes with its
process. A file whose row is gone is garbage; its maker holds the lock until the row is there.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import UUID

MAX_LISTED: Final = 100_000
"""Looked at in one sweep; the next goes on."""


class InUse(Exception):
    """Another request writes it, or takes it."""


class OpenFile:
    """One upload's file, open; locked until `unlock` or `close`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def lock(self) -> None:
        """Raises `InUse`."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse from None

    def unlock(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def write(self, data: bytes | bytearray, offset: int) -> None:
        """All of it, at `offset`."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self.descriptor, view, offset)
            view, offset = view[written:], offset + written

    def cut(self, num_bytes: int) -> None:
        """Drops what lies beyond."""
        os.ftruncate(self.descriptor, num_bytes)

    def sync(self) -> None:
        os.fdatasync(self.descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


class OpenUploads:
    """The folder of such files; a name is an upload's id, never a client's."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def made(self, upload: UUID) -> Iterator[None]:
        """An empty file, kept if the block (which makes its row) ends well."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self.path(upload)
        file = OpenFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        try:
            file.lock()
            self._sync_folder()
            yield
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            file.close()

    def open(self, upload: UUID) -> OpenFile:
        """Locked. Raises `InUse`, and FileNotFoundError."""
        path = self.path(upload)
        file = OpenFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))
        try:
            file.lock()
        except InUse:
            file.close()
            raise
        return file

    def has(self, upload: UUID) -> bool:
        return self.path(upload).exists()

    def remove(self, upload: UUID) -> None:
        self.path(upload).unlink(missing_ok=True)

    def listed(self) -> list[UUID]:
        found = []
        with suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                with suppress(ValueError):
                    found.append(UUID(hex=entry.name))
                if len(found) >= MAX_LISTED:
                    break
        return found

    def remove_left(self, upload: UUID) -> bool:
        """Removes a file whose row is gone, unless somebody holds it."""
        try:
            file = self.open(upload)
        except (InUse, FileNotFoundError):
            return False
        try:
            self.remove(upload)
        finally:
            file.close()
        return True

    def path(self, upload: UUID) -> Path:
        return self.root / upload.hex

    def _sync_folder(self) -> None:
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
