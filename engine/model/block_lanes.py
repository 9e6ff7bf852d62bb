"""Block tables in a device's memory: each sequence of a step has one row (its lane), and only what changed is
sent.

A sequence keeps its lane while it is in every step, and then only its new blocks are sent: a few numbers a
step instead of every table. Lanes are compact: whoever comes last moves into the lane of one that left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.core.plan import Row


class BlockLanes:
    """The host's side: what each lane holds on the device once the changes told so far have arrived."""

    def __init__(self, num_lanes: int, num_blocks: int) -> None:
        self._num_lanes = num_lanes
        self._num_blocks = num_blocks  # of one sequence, at most
        self._lanes: dict[int, int] = {}
        self._sequences: list[int] = []  # by lane
        self._tables: list[list[int]] = []  # by lane

    def arrange(self, rows: Sequence[Row]) -> tuple[list[int], NDArray[np.int32], NDArray[np.int32]]:
        """The lane of each row, 0 to len(rows) - 1 in some order; the places in the flattened table [lanes,
        blocks] whose value changes, and the values."""
        assert len(rows) <= self._num_lanes, "more rows in a step than the runner was built for"
        self._leave({row.sequence for row in rows})
        places: list[NDArray[np.int32]] = []
        values: list[NDArray[np.int32]] = []
        for row in rows:
            self._enter(row)
        lanes = [self._lanes[row.sequence] for row in rows]
        for lane, row in zip(lanes, rows, strict=True):
            held, wanted = self._tables[lane], row.block_table
            if held == wanted:
                continue
            start = _common(held, wanted)
            assert len(wanted) <= self._num_blocks, "a block table is longer than the longest context"
            first = lane * self._num_blocks + start
            places.append(np.arange(first, first + len(wanted) - start, dtype=np.int32))
            values.append(np.array(wanted[start:], np.int32))
            self._tables[lane] = list(wanted)
        if not places:
            return lanes, np.empty(0, np.int32), np.empty(0, np.int32)
        return lanes, np.concatenate(places), np.concatenate(values)

    def _leave(self, present: set[int]) -> None:
        """A lane that its last sequence took over has that sequence's table to learn anew."""
        for lane in reversed(range(len(self._sequences))):
            sequence = self._sequences[lane]
            if sequence in present:
                continue
            del self._lanes[sequence]
            last = self._sequences.pop()
            self._tables[lane] = []
            del self._tables[-1]
            if last != sequence:
                self._sequences[lane] = last
                self._lanes[last] = lane

    def _enter(self, row: Row) -> None:
        if row.sequence not in self._lanes:
            self._lanes[row.sequence] = len(self._sequences)
            self._sequences.append(row.sequence)
            self._tables.append([])


def _common(held: Sequence[int], wanted: Sequence[int]) -> int:
    """Length of the common prefix; nearly always one of the two is the whole of it."""
    shorter = min(len(held), len(wanted))
    if held[:shorter] == wanted[:shorter]:
        return shorter
    return next(i for i in range(shorter) if held[i] != wanted[i])
