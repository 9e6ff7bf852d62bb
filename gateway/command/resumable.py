"""Files sent by tus: each goes on where the gateway has it, after a dropped connection, a restart of the
gateway, or another start of the command."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

from gateway.command.api import Api, CommandFailed, Refused, Unreachable
from gateway.command.upload_state import UploadState

CHUNK_BYTES: Final = 8 * 1024 * 1024
"""Of one request: what a broken one loses at most."""
GIVE_UP_S: Final = 300.0
MOST_MISMATCHES: Final = 3
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
_TUS: Final = {"tus-resumable": "1.0.0"}
_PASSING: Final = frozenset({408, 423, 429, 460, 500, 502, 503, 504})
_PASSING_CODES: Final = frozenset({"wrong_offset", "upload_overtaken"})
_GONE: Final = frozenset({404, 410})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a gateway that can't be reached, or can't answer, is waited for."""

    give_up_s: float = GIVE_UP_S
    chunk_bytes: int = CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class Told:
    """Who watches: `at` hears the file and how much of it is there, `waiting` why it stands still."""

    at: Callable[[str, int], None]
    waiting: Callable[[str], None]


class Waiting:
    """Pauses that grow, until there was no progress for too long."""

    def __init__(self, patience: Patience, told: Told) -> None:
        self._patience = patience
        self._told = told
        self._since = time.monotonic()
        self._tries = 0

    def progress(self) -> None:
        self._since, self._tries = time.monotonic(), 0

    def after(self, failed: CommandFailed) -> None:
        """Raises `failed` when it can't pass, or has not for too long."""
        if isinstance(failed, Refused) and not _passes(failed):
            raise failed
        if time.monotonic() - self._since > self._patience.give_up_s:
            raise failed
        self._told.waiting(str(failed))
        time.sleep(max(_asked_s(failed), _PAUSES_S[min(self._tries, len(_PAUSES_S) - 1)]))
        self._tries += 1


class FileUpload:
    """One file on its way."""

    def __init__(
        self, api: Api, root: str, path: Path, state: UploadState, told: Told, patience: Patience
    ) -> None:
        self._api = api
        self._root = root
        self._path = path
        self._state = state
        self._told = told
        self._patience = patience
        self._size = path.stat().st_size
        self._mismatches = 0

    def send(self) -> str:
        """The upload's id, once all of it is there. Raises `CommandFailed`."""
        waiting = Waiting(self._patience, self._told)
        place = self._state.place_of(self._path)
        offset: int | None = None
        while offset != self._size:
            try:
                if place is None:
                    place, offset = self._create(), 0
                    self._state.keep(self._path, place)
                elif offset is None:
                    offset = self._offset(place)
                else:
                    offset = self._send_chunk(place, offset)
                    waiting.progress()
                if offset is None:  # it is gone: begin anew
                    self._state.forget(self._path)
                    place = None
            except (Unreachable, Refused) as failed:
                self._count(failed)
                waiting.after(failed)
                offset = None
            if offset is not None:
                self._told.at(self._path.name, offset)
        assert place is not None
        return place.rpartition("/")[2]

    def _create(self) -> str:
        metadata = {"filename": self._path.name, "sha256": _sha256_of(self._path)}
        pairs = [f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in metadata.items()]
        headers = {**_TUS, "upload-length": str(self._size), "upload-metadata": ",".join(pairs)}
        made = self._api.exchange("POST", f"{self._root}/uploads", headers)
        return urljoin(f"{self._root}/uploads", made["location"])

    def _offset(self, place: str) -> int | None:
        try:
            found = self._api.exchange("HEAD", place, _TUS)
        except Refused as refused:
            if refused.status in _GONE:
                return None
            raise
        return _number(found, "upload-offset") if _number(found, "upload-length") == self._size else None

    def _send_chunk(self, place: str, offset: int) -> int:
        with self._path.open("rb") as file:
            file.seek(offset)
            chunk = file.read(self._patience.chunk_bytes)
        if not chunk:
            raise CommandFailed(f"{self._path} has become shorter while it was sent.")
        digest = base64.b64encode(hashlib.sha256(chunk).digest()).decode()
        headers = {
            **_TUS,
            "content-type": "application/offset+octet-stream",
            "upload-offset": str(offset),
            "upload-checksum": f"sha256 {digest}",
        }
        return _number(self._api.exchange("PATCH", place, headers, chunk), "upload-offset")

    def _count(self, failed: CommandFailed) -> None:
        """A line that garbles bytes again and again is not to be waited for."""
        if isinstance(failed, Refused) and failed.status == 460:
            self._mismatches += 1
            if self._mismatches >= MOST_MISMATCHES:
                raise failed


def _passes(refused: Refused) -> bool:
    return refused.status in _PASSING or refused.code in _PASSING_CODES


def _number(headers: Mapping[str, str], name: str) -> int:
    value = headers.get(name, "")
    if not value.isdigit():
        raise CommandFailed(f"What answers is no gateway of Motet: {name} is missing.")
    return int(value)


def _asked_s(failed: CommandFailed) -> float:
    """What the gateway asked to wait, within reason."""
    value = failed.headers.get("retry-after", "") if isinstance(failed, Refused) else ""
    return min(float(value), 30.0) if value.isdigit() else 0.0


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
