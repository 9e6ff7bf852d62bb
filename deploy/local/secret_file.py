"""Secrets of one home: made once, kept in a file that only its owner can read."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any


def load_or_make_secrets(path: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Every name of `names` with its value; missing ones are made and kept."""
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    missing = [name for name in names if name not in known]
    if missing:
        known.update({name: secrets.token_urlsafe(32) for name in missing})
        write_private_json(path, known)
    return known


def write_private_json(path: Path, content: Any) -> None:
    """Replace `path` (mode 0600) so that a crash leaves the old content or the new, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:
        json.dump(content, stream, indent=2)
        stream.write("\n")
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)
