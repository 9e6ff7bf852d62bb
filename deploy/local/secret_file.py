"""Secrets of one home: made once, kept in a file that only its owner can read."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

NOTHING: Mapping[str, str] = MappingProxyType({})


def load_or_make_secrets(
    path: Path, names: tuple[str, ...], formerly: Mapping[str, str] = NOTHING
) -> dict[str, str]:
    """Every name of `names` with its value; missing ones are made and kept. `formerly`: which other secret
    did its work before there was one of that name: a home of then goes on with that value, which sealed what
    lies there."""
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    made = {
        name: known.get(formerly.get(name, name)) or secrets.token_urlsafe(32)
        for name in names
        if name not in known
    }
    if made:
        known |= made
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
