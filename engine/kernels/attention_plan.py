"""What the attention kernels of a step are told, built on the device once a step and read by every layer.

The host writes `AttentionRows` (tensors of fixed capacity that a CUDA graph can hold); one kernel turns them
into `AttentionPlan`: where each token stands, and two lists of pieces of work. Grids are bounded by
capacity and what lies beyond the live counts is never read, so a captured graph replays any mix of rows.

A decode row (one token) is cut into parts of its own sequence: 256 keys each, or as few doublings more as
keep it under `MAX_PARTS`. Parts start at absolute positions and their length follows from the row's own
length, so a row's sums never depend on its company. Rows of several tokens are cut into tiles of queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.shapes import AttentionShape

MIN_PART = 256
MAX_PARTS = 32
MAX_DOUBLINGS = 16  # up to 2^29 keys
MOST_ROWS = 2048  # in a step
MOST_HEAD_DIM = 256  # what tiles fit in a multiprocessor
MOST_GROUP = 128
_STRIP = 256


@dataclass(frozen=True, slots=True)
class AttentionRows:
    """Rows of consecutive tokens, one sequence each. All int32, on the kernels' device; rows from `num_rows`
    on hold anything. Together the rows cover tokens 0 to n - 1, what follows is padding."""

    block_tables: Tensor  # [max_rows, max_blocks]
    first_token: Tensor  # [max_rows]
    num_tokens: Tensor  # [max_rows], at least 1
    position: Tensor  # [max_rows], of the first token in its sequence
    num_rows: Tensor  # [1]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    token_position: Tensor  # int32 [max_tokens]
    token_cell: Tensor  # int32 [max_tokens]: block * block_size + place in it, -1 for padding
    part_length: Tensor  # int32 [max_rows]: keys in each part of a row, but for the last part
    parts: Tensor  # int32 [max_rows * MAX_PARTS, 2]: row, part, of decode rows
    tiles: Tensor  # int32 [max_tiles, 2]: row, first token within the row, of the others
    counts: Tensor  # int32 [3]: live parts, live tiles, live tokens
    tile_tokens: int


def new_rows(max_rows: int, max_blocks: int, device: torch.device | str) -> AttentionRows:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(*shape, dtype=torch.int32, device=device)

    return AttentionRows(
        zeros(max_rows, max_blocks), zeros(max_rows), zeros(max_rows), zeros(max_rows), zeros(1)
    )


def new_plan(
    shape: AttentionShape, max_rows: int, max_tokens: int, device: torch.device | str
) -> AttentionPlan:
    assert max_rows <= MOST_ROWS
    assert shape.head_dim <= MOST_HEAD_DIM
    assert shape.group <= MOST_GROUP
    tokens = tile_tokens(shape)
    return AttentionPlan(
        torch.zeros(max_tokens, dtype=torch.int32, device=device),
        torch.full((max_tokens,), -1, dtype=torch.int32, device=device),
        torch.zeros(max_rows, dtype=torch.int32, device=device),
        torch.zeros(max_rows * MAX_PARTS, 2, dtype=torch.int32, device=device),
        torch.zeros(max_tiles(max_rows, max_tokens, tokens), 2, dtype=torch.int32, device=device),
        torch.zeros(3, dtype=torch.int32, device=device),
        tokens,
    )


def tile_rows(shape: AttentionShape) -> int:
    """Queries times heads of a group in one prefill tile: two warpgroups' products of 64 lines."""
    return max(128, padded(shape.group))


def padded(count: int) -> int:
    """The next power of two, 16 at least: sides of a matrix product."""
    return max(16, 1 << (count - 1).bit_length())


def tile_tokens(shape: AttentionShape) -> int:
    return tile_rows(shape) // shape.group


def max_tiles(max_rows: int, max_tokens: int, tokens: int) -> int:
    """Most tiles that rows of at least two tokens can need: each row wastes less than one."""
    return max(1, max_tokens // tokens + min(max_rows, max_tokens // 2))


def part_length_of(length: int) -> int:
    """Keys in a part of a decode row over `length` keys; what the kernels compute."""
    part = MIN_PART
    while part * MAX_PARTS < length:
        part *= 2
    return part


def build_plan(rows: AttentionRows, plan: AttentionPlan, shape: AttentionShape) -> None:
    """Fill `plan` for `rows`; two launches, no synchronization."""
    max_rows, max_blocks = rows.block_tables.shape
    assert rows.block_tables.is_contiguous()
    assert plan.parts.shape[0] == max_rows * MAX_PARTS
    assert plan.tile_tokens == tile_tokens(shape)
    plan.token_cell.fill_(-1)
    _plan_kernel[(max_rows,)](
        rows.block_tables,
        rows.first_token,
        rows.num_tokens,
        rows.position,
        rows.num_rows,
        plan.token_position,
        plan.token_cell,
        plan.part_length,
        plan.parts,
        plan.tiles,
        plan.counts,
        max_blocks,
        **constants(shape, max_rows),
    )


def constants(shape: AttentionShape, max_rows: int) -> dict[str, int]:
    return {
        "ROWS": padded(max_rows),
        "BLOCK_SIZE": shape.block_size,
        "TILE_TOKENS": tile_tokens(shape),
        "MIN_PART": MIN_PART,
        "MAX_PARTS": MAX_PARTS,
        "DOUBLINGS": MAX_DOUBLINGS,
        "STRIP": _STRIP,
    }


@triton.jit
def _plan_kernel(
    block_tables: tl.tensor, first_token: tl.tensor, num_tokens: tl.tensor, position: tl.tensor,
    num_rows: tl.tensor, token_position: tl.tensor, token_cell: tl.tensor, part_length: tl.tensor,
    parts: tl.tensor, tiles: tl.tensor, counts: tl.tensor, max_blocks: tl.tensor,
    ROWS: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE_TOKENS: tl.constexpr, MIN_PART: tl.constexpr,
    MAX_PARTS: tl.constexpr, DOUBLINGS: tl.constexpr, STRIP: tl.constexpr,
) -> None:  # fmt: skip
    """Each program counts the work of all rows before its own, then writes its own."""
    row = tl.program_id(0)
    live = tl.load(num_rows)
    if (row >= live) & (row > 0):
        return
    rows = tl.arange(0, ROWS)
    count = tl.load(num_tokens + rows, mask=rows < live, other=0)
    length = tl.load(position + rows, mask=rows < live, other=0) + count
    too_long = length[:, None] > (MIN_PART * MAX_PARTS << tl.arange(0, DOUBLINGS))[None, :]
    part = MIN_PART << tl.sum(too_long.to(tl.int32), 1)
    num_parts = tl.where(count == 1, tl.cdiv(length, part), 0)
    num_tiles = tl.where(count > 1, tl.cdiv(count, TILE_TOKENS), 0)
    if row == 0:
        tl.store(counts, tl.sum(num_parts))
        tl.store(counts + 1, tl.sum(num_tiles))
        tl.store(counts + 2, tl.sum(count))
        tl.store(part_length + rows, part, mask=rows < live)
    if row < live:
        first_part = tl.sum(tl.where(rows < row, num_parts, 0))
        first_tile = tl.sum(tl.where(rows < row, num_tiles, 0))
        my_parts = tl.sum(tl.where(rows == row, num_parts, 0))
        my_tiles = tl.sum(tl.where(rows == row, num_tiles, 0))
        piece = tl.arange(0, MAX_PARTS)
        to = parts + (first_part + piece) * 2
        tl.store(to, tl.zeros_like(piece) + row, mask=piece < my_parts)
        tl.store(to + 1, piece, mask=piece < my_parts)
        lane = tl.arange(0, STRIP)
        for start in range(0, my_tiles, STRIP):
            tile = start + lane
            # The last tokens have the most keys: they start first, so that the tail of the grid is short.
            at = tiles + (first_tile + my_tiles - 1 - tile) * 2
            tl.store(at, tl.zeros_like(tile) + row, mask=tile < my_tiles)
            tl.store(at + 1, tile * TILE_TOKENS, mask=tile < my_tiles)
        my_count = tl.load(num_tokens + row)
        my_token = tl.load(first_token + row)
        my_position = tl.load(position + row)
        table = block_tables + row.to(tl.int64) * max_blocks
        for start in range(0, my_count, STRIP):
            token = start + lane
            at_position = my_position + token
            block = tl.load(table + at_position // BLOCK_SIZE, mask=token < my_count, other=0)
            cell = block * BLOCK_SIZE + at_position % BLOCK_SIZE
            tl.store(token_position + my_token + token, at_position, mask=token < my_count)
            tl.store(token_cell + my_token + token, cell, mask=token < my_count)
