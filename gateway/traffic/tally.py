"""What a worker counts of its requests, minute by minute, until PostgreSQL has it.

Every request is counted, those too that `gateway/events` samples: once for its adapter, once for its tenant
and once for the platform, so that a tenant of many adapters, and a platform of many tenants, is read off one
row a minute. A cell is written as a whole, under a sequence number, as often as it changed: writing one again
changes nothing, so neither a lost answer nor a database that comes back counts anything twice. What a killed
worker had not written is lost: a few seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count, islice
from typing import Final
from uuid import UUID

from gateway.ids import uuid7
from gateway.traffic.minute import ALL, MINUTE_S, OTHER, PLATFORM, Cell, Measured, MinuteRow

MOST_CELLS: Final = 20_000
"""Kept in memory, about 3 KB each, for a database that is away. Beyond it new adapters are counted as
`(other)` of their tenant; beyond twice as many new tenants are not counted."""
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
        self._forgotten = 0  # minutes before it have left the memory
        self.lost = 0  # requests that their tenant's figures lack

    def __len__(self) -> int:
        return len(self._cells)

    def add(self, minute: int, tenant: UUID, adapter: str, measured: Measured) -> None:
        cells = self._cells
        if (minute, tenant, adapter) not in cells and len(cells) >= self._most:
            adapter = OTHER
        for key in ((minute, tenant, adapter), (minute, tenant, ALL), (minute, PLATFORM, ALL)):
            cell = cells.get(key)
            if cell is None:
                if len(cells) >= 2 * self._most and key[1] != PLATFORM:
                    self.lost += key[2] == ALL
                    continue
                cell = cells[key] = Cell(self._source if minute >= self._forgotten else uuid7())
            cell.add(measured)
            self._changed[key] = None

    def changed(self, most: int) -> tuple[list[Key], list[MinuteRow]]:
        """Cells to be written, oldest first; whoever could not says so by `not_written`."""
        keys = list(islice(self._changed, most))
        for key in keys:
            del self._changed[key]
        return keys, [self._row(key) for key in keys]

    def not_written(self, keys: list[Key]) -> None:
        """They have to be written again."""
        self._changed = dict.fromkeys(keys) | self._changed

    def forget(self, now: float) -> int:
        """Drops minutes that are over and written, and those that are too old; gives how many of the latter
        there were. A request that comes late for such a minute is counted in a cell of another source, so
        that what was written stays."""
        last, given_up = int(now // MINUTE_S) - 1, 0
        for key in [key for key in self._cells if key[0] < last]:
            if key not in self._changed:
                del self._cells[key]
            elif key[0] < last - OLDEST_MINUTES:
                del self._cells[key], self._changed[key]
                given_up += 1
        self._forgotten = max(self._forgotten, last)
        return given_up

    def _row(self, key: Key) -> MinuteRow:
        minute, tenant, adapter = key
        at = datetime.fromtimestamp(minute * MINUTE_S, UTC)
        return self._cells[key].row(tenant, at, adapter, next(self._sequences))
