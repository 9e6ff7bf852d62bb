"""The disk tier: packed adapters near the engine, under a byte budget.

Who owns what: a file belongs to the cache from the moment its checksum held; a reader holds it by a lease,
and a leased file is never deleted. Unleased files stay until room is needed, the least recently used going
first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from adapters.local_files import TEMPORARY_SUFFIX, translated
from adapters.packed import PackedCorrupt, verify
from adapters.store import Corrupt, DiskFull, ObjectStore, StoreError, Unavailable, artefact_path

FETCH_ATTEMPTS: Final = 2  # a transfer that broke the bytes is tried once more
MAX_WAIT_S: Final = 600.0  # for somebody else's download of the same artefact
_SUFFIX: Final = ".motet"
_LOCK_FILE: Final = ".lock"


class CacheInUse(StoreError):
    """Another process keeps its cache in this folder."""


class NoRoom(DiskFull):
    """The artefact is larger than the budget, or everything else in the cache is leased."""


class NotCached(StoreError):
    """No sound file here, and the caller doesn't want to wait for the store."""


def cached_file(directory: Path, owner: str, artefact: str) -> Path:
    """Where the cache in `directory` keeps an artefact, if it has it."""
    return directory / f"{owner}.{artefact}{_SUFFIX}"


def files_of(directory: Path, artefact: str) -> list[Path]:
    """What lies on the disk of an artefact, whoever owns it, half-fetched files included. Asks the disk and
    not the cache, whose folder may be another process's."""
    return sorted(directory.glob(f"*.{artefact}.*"))


@dataclass(slots=True)
class _Entry:
    path: Path
    size: int
    leases: int = 0
    checked: bool = False  # its checksum held since this process started


@dataclass(slots=True)
class _Download:
    """One fetch, which all who want that artefact wait for."""

    size: int = 0  # bytes of the budget held for it
    waiting: int = 0  # callers for whom the entry is leased from its first moment
    entry: _Entry | None = None
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class CacheState:
    used_bytes: int
    budget_bytes: int
    num_files: int
    num_leases: int
    hits: int
    misses: int
    evictions: int


class DiskCache:
    """Packed files of one engine process by (owner, artefact). Thread-safe; one process a folder."""

    def __init__(self, directory: str | Path, budget_bytes: int, store: ObjectStore) -> None:
        """Takes over what an earlier process left and clears what it left unfinished. Raises `CacheInUse`."""
        assert budget_bytes > 0
        self._directory = Path(directory)
        self._budget_bytes = budget_bytes
        self._store = store
        self._lock = threading.Lock()  # guards all below; never held while reading, writing or fetching
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # least recently used first
        self._downloads: dict[str, _Download] = {}
        self._hits = self._misses = self._evictions = 0
        with translated(str(directory)):
            self._directory.mkdir(parents=True, exist_ok=True)
        self._folder_lock = self._take_folder()
        self._adopt()

    @contextlib.contextmanager
    def lease(self, owner: str, artefact: str, *, fetch: bool = True, check: bool = True) -> Iterator[Path]:
        """The packed file, fetched if need be and kept in place until the block ends. Raises `StoreError`:
        `NotFound`, `Corrupt`, `DiskFull`, `Unavailable`, `Denied`; `NotCached` if it isn't here and `fetch`
        is false, which asks the store for nothing and waits for no download.

        With `check` False the caller reads every part against its checksum itself, within the block, so that
        no byte is hashed twice; a `PackedCorrupt` that the block raises drops the file."""
        path = artefact_path(owner, artefact)
        key = f"{owner}.{artefact}"
        acquire = self._acquire if fetch else self._acquire_here
        entry = acquire(key, path, artefact, check)
        try:
            yield entry.path
            entry.checked = True
        except PackedCorrupt:
            with self._lock:
                if self._entries.get(key) is entry:
                    self._drop(key)
            raise
        finally:
            with self._lock:
                entry.leases -= 1

    def contains(self, owner: str, artefact: str) -> bool:
        """Takes no lock, since whoever holds it may be deleting files."""
        return f"{owner}.{artefact}" in self._entries

    def forget(self, owner: str, artefact: str) -> bool:
        """Deletes the file unless it is leased (then it goes when room is needed). Whether it is gone."""
        key = f"{owner}.{artefact}"
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return True
            if entry.leases:
                self._entries.move_to_end(key, last=False)
                return False
            self._drop(key)
            return True

    def state(self) -> CacheState:
        with self._lock:
            leases = sum(entry.leases for entry in self._entries.values())
            return CacheState(
                self._used_bytes(),
                self._budget_bytes,
                len(self._entries),
                leases,
                self._hits,
                self._misses,
                self._evictions,
            )

    def close(self) -> None:
        """Gives the folder up; the files stay for the next process."""
        os.close(self._folder_lock)

    def _acquire(self, key: str, path: str, artefact: str, check: bool) -> _Entry:
        """A leased entry whose checksum held, if it is to be checked. Nothing about a failure is remembered:
        the next caller tries again."""
        for _ in range(FETCH_ATTEMPTS):
            entry, download = self._lease_or_join(key)
            if entry is None:
                if download is not None:
                    entry = self._wait(key, download)
                else:
                    entry = self._download(key, path, artefact, check)
            if not check or self._still_good(key, entry, artefact):
                return entry
        raise Corrupt(f"{path} is damaged on the disk of this machine")

    def _acquire_here(self, key: str, path: str, artefact: str, check: bool) -> _Entry:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                raise NotCached(f"{path} is not on this machine")
            self._hits += 1
            entry.leases += 1
            self._entries.move_to_end(key)
        if check and not self._still_good(key, entry, artefact):
            raise NotCached(f"{path} was damaged on this machine")
        return entry

    def _lease_or_join(self, key: str) -> tuple[_Entry | None, _Download | None]:
        """The entry, leased; or the download to wait for; or neither, and the download is ours to do."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._hits += 1
                entry.leases += 1
                self._entries.move_to_end(key)
                return entry, None
            self._misses += 1
            download = self._downloads.get(key)
            if download is None:
                self._downloads[key] = _Download()
            else:
                download.waiting += 1
            return None, download

    def _wait(self, key: str, download: _Download) -> _Entry:
        if not download.done.wait(MAX_WAIT_S):
            with self._lock:
                if not download.done.is_set():
                    download.waiting -= 1
                    raise Unavailable(f"the download of {key} did not end within {MAX_WAIT_S:.0f} s")
        if download.error is not None:
            raise download.error
        assert download.entry is not None  # it ended without an error
        return download.entry

    def _download(self, key: str, path: str, artefact: str, check: bool) -> _Entry:
        download = self._downloads[key]
        try:
            size = self._store.size(path)
            self._make_room(download, size, path)
            target = self._directory / (key + _SUFFIX)
            self._fetch(path, artefact, target, check)
            download.entry = _Entry(target, size, checked=check)
        except BaseException as error:
            download.error = error if isinstance(error, StoreError) else Unavailable(f"{path}: {error!r}")
            raise
        finally:
            with self._lock:
                del self._downloads[key]
                if download.entry is not None:
                    download.entry.leases = 1 + download.waiting
                    self._entries[key] = download.entry
                download.done.set()
        return download.entry

    def _make_room(self, download: _Download, size: int, path: str) -> None:
        with self._lock:
            most_bytes = self._budget_bytes - size
            if self._held_bytes() > most_bytes:  # nobody else's file would help
                raise NoRoom(f"{path} has {size} bytes; the cache of {self._budget_bytes} bytes is in use")
            self._evict(most_bytes)
            download.size = size

    def _fetch(self, path: str, artefact: str, target: Path, check: bool) -> None:
        """The file in place, its checksum held if it is to be checked. Bytes that broke on the way are
        fetched once more; on a full disk everything unleased goes first."""
        for attempt in range(1, FETCH_ATTEMPTS + 1):
            try:
                self._fetch_once(path, artefact, target, check)
            except DiskFull:
                if attempt == FETCH_ATTEMPTS:
                    raise
                with self._lock:
                    self._evict(0)
            except PackedCorrupt as error:
                if attempt == FETCH_ATTEMPTS:
                    raise Corrupt(f"{path}: {error}") from error
            else:
                return

    def _fetch_once(self, path: str, artefact: str, target: Path, check: bool) -> None:
        """Not made durable, which would cost more than the fetch: a process that finds the file later reads
        it against its checksums first."""
        arriving = target.with_suffix(TEMPORARY_SUFFIX)
        try:
            self._store.fetch_file(path, arriving, durable=False)
            with translated(str(arriving)):
                if check:
                    verify(arriving, artefact)
                arriving.replace(target)
        finally:
            with contextlib.suppress(OSError):  # a leftover is cleared at the next start
                arriving.unlink(missing_ok=True)

    def _still_good(self, key: str, entry: _Entry, artefact: str) -> bool:
        """Files of an earlier process are read against their checksum once, before their first use."""
        if not entry.checked:
            try:
                verify(entry.path, artefact)
                entry.checked = True
            except (PackedCorrupt, OSError):
                with self._lock:
                    entry.leases -= 1
                    if self._entries.get(key) is entry:
                        self._drop(key)
        return entry.checked

    def _evict(self, most_bytes: int) -> None:
        """Deletes unleased files, oldest first, until at most `most_bytes` are used or none is left."""
        idle = [key for key, entry in self._entries.items() if not entry.leases]
        for key in idle:
            if self._used_bytes() <= most_bytes:
                break
            self._drop(key)
            self._evictions += 1

    def _drop(self, key: str) -> None:
        with contextlib.suppress(OSError):  # a file that can't be deleted is found again at the next start
            self._entries[key].path.unlink(missing_ok=True)
        del self._entries[key]

    def _used_bytes(self) -> int:
        idle = sum(entry.size for entry in self._entries.values() if not entry.leases)
        return self._held_bytes() + idle

    def _held_bytes(self) -> int:
        """Of downloads and leased files, which stay."""
        leased = sum(entry.size for entry in self._entries.values() if entry.leases)
        return leased + sum(download.size for download in self._downloads.values())

    def _take_folder(self) -> int:
        with translated(str(self._directory)):
            descriptor = os.open(self._directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise CacheInUse(
                f"another process uses {self._directory}; give each engine a cache folder of its own"
            ) from None
        return descriptor

    def _adopt(self) -> None:
        with translated(str(self._directory)):
            found = [(file.stat(), file) for file in self._directory.iterdir() if file.is_file()]
        for stat, file in sorted(found, key=lambda item: item[0].st_mtime):
            if file.name.endswith(TEMPORARY_SUFFIX):
                file.unlink(missing_ok=True)
            elif file.name.endswith(_SUFFIX):
                self._entries[file.name.removesuffix(_SUFFIX)] = _Entry(file, stat.st_size)
        self._evict(self._budget_bytes)
