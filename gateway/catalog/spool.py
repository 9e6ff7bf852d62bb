"""Where uploads wait on disk while they are proved. Every ending empties it, a killed worker's included.

Each upload has a directory of its own, locked (flock) as long as its worker lives; a directory that nobody
locks was left behind by a killed worker and is removed when the next one starts.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from gateway.errors import Unavailable

log = structlog.get_logger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL_RETRY_S = 30.0


@contextmanager
def spool_errors() -> Iterator[None]:
    """The spool's disk is ours, so what it can't do is passing, and never the client's fault: raises
    `Unavailable`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            log.error("upload_disk_full")  # noqa: TRY400  the stack would tell nothing
            raise Unavailable(
                "The gateway's disk has no room for the upload now. Try again later.",
                retry_after_s=_FULL_RETRY_S,
                code="disk_full",
            ) from error
        log.exception("upload_disk_failed")
        raise Unavailable("The gateway cannot keep the upload now. Try again shortly.") from error


class Spool:
    """A folder of directories named `prefix`…, one a piece of work, shared by all processes of one machine.
    Its calls block: use a thread."""

    def __init__(self, root: Path, prefix: str = "upload-") -> None:
        self.root = root
        self._prefix = prefix

    def sweep(self, *, look_only: bool = False) -> list[str]:
        """Removes what killed processes left; returns the names of those directories. `look_only`: only
        names them."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = self.root.glob(f"{self._prefix}*")
        return [path.name for path in found if self._end_if_left(path, look_only)]

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """A directory for one upload, gone when the block ends however it ends."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        path, descriptor = self._locked_directory()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)

    def _locked_directory(self) -> tuple[Path, int]:
        # A sweep may take a directory between its making and its locking: then make another.
        while True:
            path = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self.root))
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if path.exists():
                return path, descriptor
            os.close(descriptor)

    def _end_if_left(self, path: Path, look_only: bool) -> bool:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # its owner finished meanwhile
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            if not look_only:
                shutil.rmtree(path, ignore_errors=True)
            return True
        finally:
            os.close(descriptor)
