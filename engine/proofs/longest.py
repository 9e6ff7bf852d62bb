"""For which bases and ranks the longest context was computed and stayed finite, remembered on this disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import structlog

from adapters.local_files import replacing
from adapters.store import StoreError

SMALLEST_CLASS: Final = 8
MOST_REMEMBERED: Final = 256
FILE: Final = "longest-proofs.json"

log = structlog.get_logger("engine.server")


def rank_class(max_rank: int) -> int:
    """8, 16, 32, ...: adapters of one class take the same kernels."""
    return max(SMALLEST_CLASS, 1 << (max_rank - 1).bit_length())


class LongestRuns:
    """At most `MOST_REMEMBERED`, the oldest going first. What can't be read or written is done again."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._known: list[str] | None = None

    def knows(self, base_digest: str, ranks: int) -> bool:
        return _name(base_digest, ranks) in self._read()

    def note(self, base_digest: str, ranks: int) -> None:
        known = [name for name in self._read() if name != _name(base_digest, ranks)]
        self._known = [*known, _name(base_digest, ranks)][-MOST_REMEMBERED:]
        try:
            with replacing(self._path) as temporary:
                temporary.write_text(json.dumps(self._known))
        except StoreError as error:
            log.warning("longest_proof_not_remembered", error=str(error))

    def _read(self) -> list[str]:
        if self._known is None:
            try:
                self._known = [str(name) for name in json.loads(self._path.read_text())]
            except (OSError, ValueError, TypeError):
                self._known = []
        return self._known


def _name(base_digest: str, ranks: int) -> str:
    return f"{base_digest} {ranks}"
