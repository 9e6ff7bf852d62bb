"""Where artefacts are kept: a folder or S3, behind one interface. Blocking; call it from threads.

A path in the store is made by us from ids, never by a client; it is checked all the same. A put is atomic (a
reader sees the whole object or none), a fetch lands whole or not at all, and every wait has an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

FORMAT_FOLDER: Final = "v1"  # of packed.FORMAT_VERSION
MAX_PATH_CHARS: Final = 512
_PATH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,127}){0,15}")
_OWNER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_ARTEFACT: Final = re.compile(r"[0-9a-f]{64}")


class StoreError(Exception):
    """The store, or the disk beneath a fetch, did not do what was asked."""


class NotFound(StoreError):
    """There is no object at that path."""


class NoStore(StoreError):
    """The store itself is not there: its bucket or folder does not exist."""


class Denied(StoreError):
    """Our credentials may not do this; trying again won't help."""


class Unavailable(StoreError):
    """No answer, or not a usable one, within the retries; trying again later may help."""


class Corrupt(StoreError):
    """What came is not what was put."""


class DiskFull(StoreError):
    """No room for it on the local disk."""


class InvalidPath(StoreError):
    """A path that could leave its place; nothing was touched."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A put that has not ended. `token` is the store's own name for it."""

    path: str
    token: str
    age_s: float


class ObjectStore(Protocol):
    """Objects by path. Every method raises `StoreError`."""

    def put_file(self, source: Path, path: str) -> None:
        """Stores a copy of `source`, replacing what was there, atomically and durably."""
        ...

    def fetch_file(self, path: str, target: Path, *, durable: bool = True) -> None:
        """Writes the object to the local file `target`, atomically, and if `durable` so that it survives a
        power loss. Raises `NotFound`, `DiskFull`."""
        ...

    def size(self, path: str) -> int:
        """Bytes of the object. Raises `NotFound`."""
        ...

    def exists(self, path: str) -> bool: ...

    def age_s(self, path: str) -> float:
        """Seconds since the object was put, by this machine's clock. Raises `NotFound`."""
        ...

    def delete(self, path: str) -> None:
        """Deletes the object; one that is not there is deleted already."""
        ...

    def unfinished(self, older_than_s: float) -> Iterator[Unfinished]:
        """Puts that began so long ago and never ended, because whoever made them died."""
        ...

    def discard(self, put: Unfinished) -> None:
        """Removes what is there of it; nothing where that has happened already."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """Paths of all objects below the folder `prefix` ("" = all), in no order that a caller may lean
        on."""
        ...


def open_store(url: str) -> ObjectStore:
    """`file:///folder`, or `s3://bucket/prefix[?endpoint=http://host:port&region=…]`. Without `endpoint`,
    MOTET_STORE_ENDPOINT_URL names one for stores that aren't Amazon's. Raises ValueError for another form."""
    parts = urlsplit(url)
    if parts.scheme == "s3":
        from adapters.store_s3 import open_s3  # noqa: PLC0415  (boto3 takes 0.3 s to import)

        return open_s3(url)
    if parts.scheme not in ("file", ""):
        raise ValueError(f"a store's URL starts with file:// or s3://, not {parts.scheme}://")
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise ValueError(f"a store's file:// URL has three slashes and an absolute path, unlike {url!r}")
    from adapters.store_folder import FolderStore  # noqa: PLC0415  (it builds on the errors above)

    return FolderStore(Path(unquote(parts.path)))


def artefact_path(owner: str, artefact: str) -> str:
    """Where the packed form of an artefact lies. Raises `InvalidPath`."""
    if not _OWNER.fullmatch(owner) or not _ARTEFACT.fullmatch(artefact):
        raise InvalidPath(f"{owner[:80]!r} and {artefact[:80]!r} are not an owner and an artefact id")
    return f"tenants/{owner}/artefacts/{artefact}/{FORMAT_FOLDER}/adapter.motet"


def artefact_of(path: str) -> tuple[str, str] | None:
    """(owner, artefact) of a packed artefact's path; None for any other."""
    match path.split("/"):
        case ["tenants", owner, "artefacts", artefact, _, _] if (
            _OWNER.fullmatch(owner)
            and _ARTEFACT.fullmatch(artefact)
            and path == artefact_path(owner, artefact)
        ):
            return owner, artefact
        case _:
            return None


def check_path(path: str) -> str:
    """The path itself, once it is known to stay below the store's root. Raises `InvalidPath`."""
    if len(path) > MAX_PATH_CHARS or not _PATH.fullmatch(path):
        raise InvalidPath(f"{path[:80]!r} is not a path of the store")
    return path
