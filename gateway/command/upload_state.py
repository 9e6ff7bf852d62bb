"""Where the command line's uploads are: a small file for each, so that the next start goes on."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path


def default_folder() -> Path:
    """As the XDG base directory specification has it."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "motet" / "uploads"


class UploadState:
    """Of one gateway and tenant (`owner` names both). It holds no secret."""

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder = folder
        self._owner = owner

    def place_of(self, file: Path) -> str | None:
        """The path of the upload that was begun of this file, as it is now."""
        try:
            kept = json.loads(self._place(file).read_text())
        except (OSError, ValueError):
            return None
        same = isinstance(kept, dict) and kept.get("file") == _identity(file)
        place = kept.get("place") if same else None
        return place if isinstance(place, str) else None

    def keep(self, file: Path, place: str) -> None:
        """Without it the next start begins anew, so what can't be written is no error."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            target = self._place(file)
            partial = target.with_suffix(".part")
            partial.write_text(json.dumps({"file": _identity(file), "place": place}))
            partial.replace(target)

    def forget(self, file: Path) -> None:
        with suppress(OSError):
            self._place(file).unlink(missing_ok=True)

    def _place(self, file: Path) -> Path:
        name = hashlib.sha256(f"{self._owner}\n{file.resolve()}".encode()).hexdigest()[:32]
        return self._folder / f"{name}.json"


def _identity(file: Path) -> list[int]:
    found = file.stat()
    return [found.st_size, found.st_mtime_ns, found.st_ino]
