"""Reads the usage journal while the core writes it, from another process, a page at a time."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from engine.core.journal import ID_FILE, JournalLine, segments

log = logging.getLogger(__name__)

_DECODER = msgspec.json.Decoder(JournalLine)


class JournalPage(msgspec.Struct, frozen=True):
    """Lines in order. Ask again with `after=next`; a first `n` beyond `after + 1` means older lines are
    gone."""

    journal_id: str
    lines: list[JournalLine]
    next: int


class JournalReader:
    """Holds a page in memory and remembers where it ended, so that following the journal doesn't read it
    again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._place: tuple[int, Path, int] | None = None  # the line `n` ended at this byte of that segment

    def read(self, after: int, limit: int) -> JournalPage:
        """At most `limit` whole lines with `n` > `after`. Blocks on disk: call it in a thread, one at a time.
        Raises `FileNotFoundError` while no core has ever opened the directory."""
        lines: list[JournalLine] = []
        for path, offset in self._starts(after):
            lines.extend(self._read_segment(path, offset, after, limit - len(lines)))
            if len(lines) >= limit:
                break
        journal_id = self._directory.joinpath(ID_FILE).read_text().strip()
        return JournalPage(journal_id, lines, lines[-1].n if lines else after)

    def _starts(self, after: int) -> list[tuple[Path, int]]:
        """Segments that may hold lines past `after`, with the byte to begin at."""
        known = segments(self._directory)
        following = [*(first for first, _ in known[1:]), None][: len(known)]
        starts = []
        for (_, path), next_first in zip(known, following, strict=True):
            if next_first is not None and next_first <= after + 1:
                continue
            at_place = self._place is not None and self._place[:2] == (after, path)
            starts.append((path, self._place[2] if at_place and self._place else 0))
        return starts

    def _read_segment(self, path: Path, offset: int, after: int, limit: int) -> list[JournalLine]:
        lines: list[JournalLine] = []
        with path.open("rb") as file:
            file.seek(offset)
            while len(lines) < limit and (data := file.readline()).endswith(b"\n"):
                offset += len(data)
                try:
                    line = _DECODER.decode(data)
                except msgspec.MsgspecError:  # one damaged line must not hide all that follow
                    log.exception("%s is damaged before byte %d", path.name, offset)
                    continue
                if line.n > after:
                    lines.append(line)
                    self._place = (line.n, path, offset)
            if lines:  # a number that was read must not come back for another line after a power loss
                os.fdatasync(file.fileno())
        return lines
