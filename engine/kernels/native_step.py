"""What one whole step reads (docs/decisions/0010), laid out for one call, and the backend around it.

Beside `engine.kernels.host`: cells of the KV cache have the same size here, another order inside (paged.h).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.core.plan import Row
from engine.kernels.native import CStep
from engine.kernels.native_slots import AdapterPacker, NativeSlots
from engine.kernels.shapes import (
    MAX_GROUPED,
    AdapterSlots,
    AttentionShape,
    LayerCache,
    new_cache,
)

TILE_ROWS = 16


@dataclass(frozen=True, slots=True)
class NativeStep:
    """A step for one call; `c` but for the residual and the scratch, which the model adds."""

    c: CStep
    num_tokens: int
    numbers: NDArray[np.int32]  # what `c` points to
    touched: NDArray[np.uint8] | None
    slots: NativeSlots

    @property
    def tokens(self) -> Tensor:
        return torch.from_numpy(self.numbers[: self.num_tokens])


class NativeKernels:
    """The parts of `engine.kernels.shapes.Kernels` around a model that computes whole steps."""

    def __init__(self, packer: AdapterPacker) -> None:
        self.packer = packer

    def new_cache(
        self,
        shape: AttentionShape,
        num_blocks: int,
        dtype: torch.dtype,
        key_scale: float = 1.0,
        value_scale: float = 1.0,
    ) -> LayerCache:
        return new_cache(shape, num_blocks, dtype, key_scale, value_scale)

    def new_slots(self, num_slots: int, num_layers: int, sites: Mapping[str, tuple[int, int]]) -> NativeSlots:
        """The packer knows the sites."""
        return NativeSlots(self.packer, num_slots, num_layers)

    def plan(self, shape: AttentionShape, rows: Sequence[Row], slots: AdapterSlots) -> NativeStep:
        assert isinstance(slots, NativeSlots)
        tokens: list[int] = []
        chunks: list[int] = []
        tables: list[int] = []
        most = max(1, MAX_GROUPED // 2 // shape.group)
        for row in rows:
            count, start, first, table = len(row.tokens), row.start, len(tokens), len(tables)
            tokens += row.tokens
            tables += row.block_table
            for done in range(0, count, most):
                chunks += (first + done, min(most, count - done), start + done, table)
        order, runs = _places([(row.slot, len(row.tokens)) for row in rows], len(tokens))
        parts = (tokens, order, chunks, runs, tables)
        numbers = np.array([number for part in parts for number in part], np.int32)
        at = [numbers.ctypes.data]
        for part in parts:
            at.append(at[-1] + 4 * len(part))
        held = [slots.installed(slot) for slot in set(runs[::3])]
        touched = np.bitwise_or.reduce([each.touched for each in held]) if held else None
        c = CStep(tokens=at[0], order=at[1], chunks=at[2], runs=at[3], tables=at[4])
        c.num_tokens, c.num_chunks, c.num_runs = len(tokens), len(chunks) // 4, len(runs) // 3
        c.max_rank = max((each.max_rank for each in held), default=0)
        c.factors = ctypes.addressof(slots.factors)
        c.touched = touched.ctypes.data if touched is not None else None
        return NativeStep(c, len(tokens), numbers, touched, slots)


def _places(rows: Sequence[tuple[int, int]], num_tokens: int) -> tuple[Sequence[int], list[int]]:
    """For rows of (slot, number of tokens): the token at each place of the products, and runs of (slot, first
    place, count), none across two groups of rows. Rows of a slot lie side by side, so that its factors are
    read once."""
    if all(slot < 0 for slot, _ in rows):
        return range(num_tokens), []
    by_slot: dict[int, list[int]] = {}
    token = 0
    for slot, count in rows:
        by_slot.setdefault(slot, []).extend(range(token, token + count))
        token += count
    groups = -(-num_tokens // TILE_ROWS)
    group_rows = -(-num_tokens // groups)  # as `Places` in step.h
    order: list[int] = []
    runs: list[int] = []
    for slot, members in sorted(by_slot.items()):
        place, end = len(order), len(order) + len(members)
        order += members
        while slot >= 0 and place < end:
            count = min(end, (place // group_rows + 1) * group_rows) - place
            runs += (slot, place, count)
            place += count
    return order, runs
