"""Durable, all-or-nothing writes to the local disk."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from adapters.store import Denied, DiskFull, NotFound, StoreError, Unavailable

TEMPORARY_SUFFIX: Final = ".tmp"
_numbers = itertools.count()


@contextlib.contextmanager
def replacing(target: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yields a temporary path beside `target`; when the block ends well, what was written there becomes
    `target` and, if `durable`, survives a power loss. Otherwise nothing is left. Raises `StoreError` for what
    the disk says."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{next(_numbers)}{TEMPORARY_SUFFIX}")
    try:
        with translated(str(target)):
            target.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            if durable:
                _sync(temporary)
            temporary.replace(target)
            if durable:
                _sync(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """The disk's errors as `StoreError`s."""
    try:
        yield
    except OSError as error:
        raise _store_error(error, what) from error


def _store_error(error: OSError, what: str) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(f"no room on the disk for {what}")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Denied(f"no permission for {what}: {error.strerror}")
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
        return NotFound(f"there is no {what}")
    return Unavailable(f"the disk failed at {what}: {error.strerror or error}")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
