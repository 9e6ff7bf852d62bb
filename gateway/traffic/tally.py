"""What a worker counts of its requests, minute by minute, until PostgreSQL has it.

Every request is counted, those too that `gateway/events` samples. A cell is written as a whole, under a
sequence number, as often as it changed: writing one again changes nothing, so neither a lost answer nor a
database that comes back counts anything twice. What a killed worker had not written is lost: a few seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Final
from uuid import UUID

from gateway.traffic.minute import MINUTE_S, OTHER, Cell, MinuteRow

MOST_CELLS: Final = 20_000
"""Kept in memory, about 3 KB each, for a database that is away. Beyond it a new tenant and adapter are
counted as `(other)` of the tenant, and then not at all."""
OLDEST_MINUTES: Final = 60
"""What could not be written for so long is given up: nobody may write into hours that were summed up."""

Key = tuple[int, UUID, str]  # minute of Unix time, tenant, adapter


class Tally:
    """One per worker. `source` names its life in the table."""

    def __init__(self, source: UUID, most_cells: int = MOST_CELLS) -> None:
        self._source = source
        self._most = most_cells
        self._cells: dict[Key, Cell] = {}
        self._changed: dict[Key, None] = {}
        self._sequences = count(1)
        self.lost = 0  # requests that are in no cell

    def __len__(self) -> int:
        return len(self._cells)

    def cell(self, minute: int, tenant: UUID, adapter: str) -> Cell | None:
        """To be counted up at once; None where there is no more room."""
        key = (minute, tenant, adapter)
        found = self._cells.get(key)
        if found is None:
            if len(self._cells) >= self._most:
                key = (minute, tenant, OTHER)
                found = self._cells.get(key)
                if found is None and len(self._cells) >= 2 * self._most:
                    self.lost += 1
                    return None
            if found is None:
                found = self._cells[key] = Cell()
        self._changed[key] = None
        return found

    def changed(self, most: int) -> tuple[list[Key], list[MinuteRow]]:
        """Cells to be written, oldest first; `written` says that they are."""
        keys = list(_first(self._changed, most))
        for key in keys:
            del self._changed[key]
        return keys, [self._row(key) for key in keys]

    def not_written(self, keys: list[Key]) -> None:
        """They have to be written again."""
        self._changed = dict.fromkeys(keys) | self._changed

    def forget(self, now: float) -> int:
        """Minutes that are over and written, and those that are too old; gives how many of the latter."""
        minute, given_up = int(now // MINUTE_S), 0
        for key in list(self._cells):
            if key[0] < minute - OLDEST_MINUTES and key in self._changed:
                del self._changed[key]
                given_up += 1
            if key[0] < minute - 1 and key not in self._changed:
                del self._cells[key]
        return given_up

    def _row(self, key: Key) -> MinuteRow:
        minute, tenant, adapter = key
        at = datetime.fromtimestamp(minute * MINUTE_S, UTC)
        return self._cells[key].row(tenant, at, adapter, self._source, next(self._sequences))


def _first(changed: dict[Key, None], most: int) -> Iterator[Key]:
    for number, key in enumerate(changed):
        if number >= most:
            return
        yield key
