"""Which rows of a step go with which adapter, sorted into blocks on the device.

A block holds rows of one slot alone, so that a kernel reads that slot's factors once for all of them. Blocks
are built by a counting sort (stable: rows keep their order, so the same step gives the same blocks) in one
launch that never asks the host anything: a captured graph builds them anew at each replay, for whatever
adapters the rows name by then. Launches are bounded by what `num_rows` and the slots could need,
`SgmvPlan.max_blocks`, never by how many adapters were there at capture.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

BASE = -1
DECODE_BLOCK_ROWS = 16  # the smallest tile of a tensor core
PREFILL_BLOCK_ROWS = 64  # the smallest tile of Hopper's warpgroup products
MOST_DECODE_ROWS = 256
CHUNK = 1024  # rows looked at together


@dataclass(frozen=True, slots=True)
class SgmvPlan:
    """Views into a planner's buffers: the next `build` overwrites them."""

    sorted_rows: Tensor  # int32 [max_blocks * block_rows]: rows, block after block; BASE fills a block up
    block_slot: Tensor  # int32 [max_blocks], always of some slot
    num_blocks: Tensor  # int32 [1]: blocks beyond are stale
    num_rows: int  # of the step's tensors, padding included
    block_rows: int

    @property
    def max_blocks(self) -> int:
        return self.block_slot.shape[0]


class SgmvPlanner:
    """Owns the buffers, enough for any step of up to `max_rows` rows."""

    def __init__(self, max_rows: int, num_slots: int, device: torch.device | str) -> None:
        self.max_rows = max_rows
        self.num_slots = num_slots
        most_rows = max(
            rows_in_block * max_blocks(num_rows, num_slots, rows_in_block)
            for rows_in_block, num_rows in (
                (DECODE_BLOCK_ROWS, min(max_rows, MOST_DECODE_ROWS)),
                (PREFILL_BLOCK_ROWS, max_rows),
            )
        )
        self._sorted_rows = torch.empty(most_rows, dtype=torch.int32, device=device)
        self._block_slot = torch.zeros(most_rows // DECODE_BLOCK_ROWS, dtype=torch.int32, device=device)
        self._num_blocks = torch.zeros(1, dtype=torch.int32, device=device)

    def build(self, token_slot: Tensor, num_tokens: Tensor) -> SgmvPlan:
        """`token_slot` int32 [num_rows]: the slot of each row, BASE for none; `num_tokens` int32 [1]: rows
        from there on are padding, whatever `token_slot` says of them. Both stay on the device.

        `num_rows` alone decides the blocks' size (16 rows up to `MOST_DECODE_ROWS`, else 64), and so the
        kernels' tiles: one bucket of rows has one order of sums.
        """
        num_rows = token_slot.shape[0]
        assert 0 < num_rows <= self.max_rows
        assert token_slot.dtype == num_tokens.dtype == torch.int32
        block_rows = DECODE_BLOCK_ROWS if num_rows <= MOST_DECODE_ROWS else PREFILL_BLOCK_ROWS
        blocks = max_blocks(num_rows, self.num_slots, block_rows)
        plan = SgmvPlan(
            self._sorted_rows[: blocks * block_rows],
            self._block_slot[:blocks],
            self._num_blocks,
            num_rows,
            block_rows,
        )
        sort_rows[(self.num_slots,)](
            token_slot,
            num_tokens,
            plan.sorted_rows,
            plan.block_slot,
            plan.num_blocks,
            num_rows,
            BLOCK_ROWS=block_rows,
            SLOTS=max(32, triton.next_power_of_2(self.num_slots)),
            CHUNK=min(CHUNK, max(128, triton.next_power_of_2(num_rows))),
        )
        return plan


def max_blocks(num_rows: int, num_slots: int, block_rows: int) -> int:
    """Blocks that any assignment of rows to slots fits in: full ones, and one begun by each slot."""
    return -(-num_rows // block_rows) + min(num_slots, num_rows)


@triton.jit(do_not_specialize=["num_rows"])
def sort_rows(
    token_slot_at: tl.tensor,
    num_tokens_at: tl.tensor,
    sorted_rows_at: tl.tensor,
    block_slot_at: tl.tensor,
    num_blocks_at: tl.tensor,
    num_rows: tl.tensor,
    BLOCK_ROWS: tl.constexpr,
    SLOTS: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """A program a slot: all count the rows of every slot, and each places its own."""
    slot = tl.program_id(0)
    num_tokens = tl.minimum(tl.load(num_tokens_at), num_rows)
    slots, chunk = tl.arange(0, SLOTS), tl.arange(0, CHUNK)
    counts = tl.zeros((SLOTS,), tl.int32)
    for start in range(0, num_tokens, CHUNK):
        row = start + chunk
        of_slot = tl.load(token_slot_at + row, mask=row < num_tokens, other=-1)
        adapted = (of_slot >= 0) & (of_slot < SLOTS)
        counts += tl.histogram(tl.where(adapted, of_slot, 0), SLOTS, mask=adapted)
    blocks = (counts + BLOCK_ROWS - 1) // BLOCK_ROWS
    if slot == 0:
        tl.store(num_blocks_at, tl.sum(blocks))
    first = tl.sum(tl.where(slots < slot, blocks, 0))
    count = tl.sum(tl.where(slots == slot, counts, 0))
    if count > 0:
        own = (count + BLOCK_ROWS - 1) // BLOCK_ROWS
        for block in range(first, first + own):
            tl.store(block_slot_at + block, slot)
        into = sorted_rows_at + first * BLOCK_ROWS
        placed = 0
        for start in range(0, num_tokens, CHUNK):
            row = start + chunk
            of_slot = tl.load(token_slot_at + row, mask=row < num_tokens, other=-1)
            mine = (of_slot == slot).to(tl.int32)
            tl.store(into + placed + tl.cumsum(mine) - 1, row, mask=mine > 0)
            placed += tl.sum(mine)
        rest = count + tl.arange(0, BLOCK_ROWS)
        tl.store(into + rest, -1, mask=rest < own * BLOCK_ROWS)
