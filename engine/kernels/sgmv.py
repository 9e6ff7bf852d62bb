"""LoRA for a step of any mix of adapters, in two products over an arena: shrink (h = A x) and expand
(y += scale * B h), each one launch for a fused group of sites.

The semantics are those of Punica's segmented gather products (Chen et al. 2023, section 4) with S-LoRA's
exact ranks; `docs/decisions/0011-sgmv-kernels.md` says what is done otherwise and why.

What is promised. A row's result depends on that row, its adapter, the group and whether the plan has decode
or prefill blocks, not on other rows, its place, the slot, or the number of adapters: every sum runs in one
fixed order (within a plane over the inputs, then the planes, then the ranks), and each element of y has one
writer. Decode and prefill tiles sum in different orders. No number beyond an adapter's live rank, nor of a
row that no block names, reaches a result. A step's launches are the same whatever its adapters, so that a
graph captured with some serves others.

Not yet run on a GPU: the tiles below are chosen from the arithmetic in that document, not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.adapter_arena import AdapterArena, ArenaLayout
from engine.kernels.lora import GROUPS, SITES
from engine.kernels.sgmv_plan import DECODE_BLOCK_ROWS, MOST_DECODE_ROWS, PREFILL_BLOCK_ROWS, SgmvPlan

MOST_SHRINK_PROGRAMS = 396  # three on each of 132 multiprocessors: more would wait for registers
MOST_EXPAND_PROGRAMS = 1056
INTERPRETED_PROGRAMS = 8  # Triton's interpreter runs one after the other, and each has its price


@dataclass(frozen=True, slots=True)
class ShrinkTiles:
    inputs: int  # read at a time
    ranks: int
    planes: int  # parts of the inputs, summed apart
    num_warps: int = 4
    num_stages: int = 4


@dataclass(frozen=True, slots=True)
class ExpandTiles:
    outputs: int
    ranks: int
    num_warps: int = 4
    num_stages: int = 2


def shrink_tiles(inputs: int, block_rows: int) -> ShrinkTiles:
    """Decode has few blocks and needs the planes to keep the memory busy; prefill has blocks enough."""
    if block_rows == DECODE_BLOCK_ROWS:
        return ShrinkTiles(inputs=128, ranks=64, planes=max(1, min(8, inputs // 512)))
    return ShrinkTiles(inputs=64, ranks=64, planes=4 if inputs >= 8192 else 2 if inputs >= 2048 else 1)


def expand_tiles(outputs: int, block_rows: int) -> ExpandTiles:
    """`outputs` of all sites of the group."""
    if block_rows == DECODE_BLOCK_ROWS:
        return ExpandTiles(outputs=256 if outputs >= 8192 else 128, ranks=32)
    return ExpandTiles(outputs=128, ranks=32, num_warps=8)


def new_bridge(layout: ArenaLayout, max_rows: int, device: torch.device | str) -> Tensor:
    """Memory between the two products, float32: enough for any group and step of up to `max_rows` rows. One
    serves a stream; it needs no clearing, ever."""
    sizes = []
    for members in GROUPS.values():
        inputs, width = layout.sites[members[0]][0], len(members) * layout.max_rank
        decode_rows = min(max_rows, MOST_DECODE_ROWS)
        for rows, block_rows in ((decode_rows, DECODE_BLOCK_ROWS), (max_rows, PREFILL_BLOCK_ROWS)):
            sizes.append(shrink_tiles(inputs, block_rows).planes * rows * width)
    return torch.empty(max(sizes), dtype=torch.float32, device=device)


def shrink(x: Tensor, plan: SgmvPlan, arena: AdapterArena, layer: int, group: str, h: Tensor) -> None:
    """The live ranks of the group's sites into `h` (from `new_bridge`), in planes of partial
    sums.

    `x` bfloat16 [plan.num_rows, inputs], contiguous, before any quantization. Needs nothing of the base
    product, so it may run beside that on another stream.
    """
    members = GROUPS[group]
    inputs = arena.layout.sites[members[0]][0]
    assert x.dtype == torch.bfloat16
    assert x.is_contiguous()
    assert x.shape == (plan.num_rows, inputs)
    tiles = shrink_tiles(inputs, plan.block_rows)
    width = len(members) * arena.layout.max_rank
    assert h.numel() >= tiles.planes * plan.num_rows * width
    rank_tiles = -(-width // tiles.ranks)
    most = MOST_SHRINK_PROGRAMS if x.is_cuda else INTERPRETED_PROGRAMS
    abreast = _clamp(most // (tiles.planes * plan.max_blocks), rank_tiles)
    blocks = _clamp(most // (tiles.planes * abreast), plan.max_blocks)
    shrink_kernel[(tiles.planes, blocks, abreast)](
        x,
        h,
        arena.data,
        arena.a_at,
        arena.rank,
        _table_row(arena, layer, members[0]),
        plan.sorted_rows,
        plan.block_slot,
        plan.num_blocks,
        plan.num_rows,
        plan.max_blocks,
        **shrink_constants(arena.layout, arena.num_slots, group, plan.block_rows),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )


def expand(h: Tensor, plan: SgmvPlan, arena: AdapterArena, layer: int, group: str, y: Tensor) -> None:
    """`y` += scale * B h, for the rows that the plan's blocks name and the columns of each site in turn.

    `y` bfloat16 or float32 [plan.num_rows, outputs of all sites], contiguous. After `shrink` of the same
    plan, layer and group, and after the base product that wrote `y`.
    """
    members = GROUPS[group]
    outputs = [arena.layout.sites[site][1] for site in members]
    assert y.is_contiguous()
    assert y.shape == (plan.num_rows, sum(outputs))
    tiles = expand_tiles(sum(outputs), plan.block_rows)
    output_tiles = sum(-(-each // tiles.outputs) for each in outputs)
    most = MOST_EXPAND_PROGRAMS if y.is_cuda else INTERPRETED_PROGRAMS
    blocks = _clamp(most // output_tiles, plan.max_blocks)
    expand_kernel[(output_tiles, blocks)](
        h,
        y,
        arena.data,
        arena.b_at,
        arena.rank,
        arena.scale,
        _table_row(arena, layer, members[0]),
        plan.sorted_rows,
        plan.block_slot,
        plan.num_blocks,
        plan.num_rows,
        plan.max_blocks,
        **expand_constants(arena.layout, arena.num_slots, group, plan.block_rows),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )


def shrink_constants(layout: ArenaLayout, num_slots: int, group: str, block_rows: int) -> dict[str, int]:
    """What the compiler is told: one compiled kernel for each group and size of blocks."""
    members = GROUPS[group]
    inputs = layout.sites[members[0]][0]
    tiles = shrink_tiles(inputs, block_rows)
    return {
        "INPUTS": inputs,
        "SLOTS": num_slots,
        "SITES": len(members),
        "MAX_RANK": layout.max_rank,
        "ROWS": block_rows,
        "INPUT_TILE": tiles.inputs,
        "RANK_TILE": tiles.ranks,
        "PLANES": tiles.planes,
    }


def expand_constants(layout: ArenaLayout, num_slots: int, group: str, block_rows: int) -> dict[str, int]:
    members = GROUPS[group]
    outputs = [layout.sites[site][1] for site in members]
    tiles = expand_tiles(sum(outputs), block_rows)
    return {
        "OUTPUTS_0": outputs[0],
        "OUTPUTS_1": outputs[1] if len(outputs) > 1 else 0,
        "OUTPUTS_2": outputs[2] if len(outputs) > 2 else 0,
        "SLOTS": num_slots,
        "SITES": len(members),
        "MAX_RANK": layout.max_rank,
        "ROWS": block_rows,
        "OUTPUT_TILE": tiles.outputs,
        "RANK_TILE": tiles.ranks,
        "PLANES": shrink_tiles(layout.sites[members[0]][0], block_rows).planes,
    }


def _clamp(wanted: int, most: int) -> int:
    return max(1, min(wanted, most))


def _table_row(arena: AdapterArena, layer: int, site: str) -> int:
    return (layer * len(SITES) + SITES.index(site)) * arena.num_slots


# Both kernels look up a block's slot, and its factors, while they still wait for the number of blocks: what
# lies beyond that number is stale, but a slot all the same.


@triton.jit(do_not_specialize=["table_row", "num_rows", "max_blocks"])
def shrink_kernel(
    x_at: tl.tensor,
    h_at: tl.tensor,
    arena_at: tl.tensor,
    a_table_at: tl.tensor,
    rank_table_at: tl.tensor,
    table_row: tl.tensor,
    sorted_rows_at: tl.tensor,
    block_slot_at: tl.tensor,
    num_blocks_at: tl.tensor,
    num_rows: tl.tensor,
    max_blocks: tl.tensor,
    INPUTS: tl.constexpr,
    SLOTS: tl.constexpr,
    SITES: tl.constexpr,
    MAX_RANK: tl.constexpr,
    ROWS: tl.constexpr,
    INPUT_TILE: tl.constexpr,
    RANK_TILE: tl.constexpr,
    PLANES: tl.constexpr,
) -> None:
    """A program sums one plane, of every `num_programs(1)`-th block, `num_programs(2)`-th tile of ranks."""
    PART: tl.constexpr = (INPUTS + PLANES * INPUT_TILE - 1) // (PLANES * INPUT_TILE) * INPUT_TILE
    IS_EVEN: tl.constexpr = PART * PLANES == INPUTS
    plane = tl.program_id(0)
    num_blocks = tl.load(num_blocks_at)
    for block in range(tl.program_id(1), max_blocks, tl.num_programs(1)):
        entry = table_row + tl.load(block_slot_at + block)
        a0, end0 = tl.load(a_table_at + entry), tl.load(rank_table_at + entry)
        a1, end1, a2, end2 = a0, end0, a0, end0
        if SITES > 1:
            a1 = tl.load(a_table_at + entry + SLOTS)
            end1 = end0 + tl.load(rank_table_at + entry + SLOTS)
            end2 = end1
        if SITES > 2:
            a2 = tl.load(a_table_at + entry + 2 * SLOTS)
            end2 = end1 + tl.load(rank_table_at + entry + 2 * SLOTS)
        row = tl.load(sorted_rows_at + block * ROWS + tl.arange(0, ROWS))
        end2 = tl.where(block < num_blocks, end2, 0)
        is_row = (row >= 0)[:, None]
        x_row = x_at + row.to(tl.int64)[:, None] * INPUTS
        h_row = h_at + (plane.to(tl.int64) * num_rows + row)[:, None] * (SITES * MAX_RANK)
        for first in range(tl.program_id(2) * RANK_TILE, end2, tl.num_programs(2) * RANK_TILE):
            stacked = first + tl.arange(0, RANK_TILE)  # ranks of all sites, one site after the other
            is_rank = (stacked < end2)[:, None]
            site = (stacked >= end0).to(tl.int32) + (stacked >= end1).to(tl.int32)
            rank = stacked - tl.where(site == 0, 0, tl.where(site == 1, end0, end1))
            a_row = tl.where(site == 0, a0, tl.where(site == 1, a1, a2)) + rank * INPUTS
            if INPUTS % 8 == 0:
                a_row = tl.multiple_of(a_row, 8)
            h = tl.zeros((ROWS, RANK_TILE), tl.float32)
            for start in range(plane * PART, plane * PART + PART, INPUT_TILE):
                at = (start + tl.arange(0, INPUT_TILE))[None, :]
                is_input = IS_EVEN or at < INPUTS
                x = tl.load(x_row + at, mask=is_row & is_input, other=0.0)
                a = tl.load(arena_at + a_row[:, None] + at, mask=is_rank & is_input, other=0.0)
                h = tl.dot(x, tl.trans(a), h)
            into = h_row + (site * MAX_RANK + rank)[None, :]
            tl.store(into, h, mask=is_row & tl.trans(is_rank))


@triton.jit(do_not_specialize=["table_row", "num_rows", "max_blocks"])
def expand_kernel(
    h_at: tl.tensor,
    y_at: tl.tensor,
    arena_at: tl.tensor,
    b_table_at: tl.tensor,
    rank_table_at: tl.tensor,
    scale_table_at: tl.tensor,
    table_row: tl.tensor,
    sorted_rows_at: tl.tensor,
    block_slot_at: tl.tensor,
    num_blocks_at: tl.tensor,
    num_rows: tl.tensor,
    max_blocks: tl.tensor,
    OUTPUTS_0: tl.constexpr,
    OUTPUTS_1: tl.constexpr,
    OUTPUTS_2: tl.constexpr,
    SLOTS: tl.constexpr,
    SITES: tl.constexpr,
    MAX_RANK: tl.constexpr,
    ROWS: tl.constexpr,
    OUTPUT_TILE: tl.constexpr,
    RANK_TILE: tl.constexpr,
    PLANES: tl.constexpr,
) -> None:
    """A program adds to one tile of columns, all of one site, of every `num_programs(1)`-th block."""
    TILES_0: tl.constexpr = (OUTPUTS_0 + OUTPUT_TILE - 1) // OUTPUT_TILE
    TILES_1: tl.constexpr = TILES_0 + (OUTPUTS_1 + OUTPUT_TILE - 1) // OUTPUT_TILE
    STRIDE: tl.constexpr = OUTPUTS_0 + OUTPUTS_1 + OUTPUTS_2
    WIDTH: tl.constexpr = SITES * MAX_RANK
    tile = tl.program_id(0)
    site, outputs, to_column = 0, OUTPUTS_0, 0
    if tile >= TILES_1:
        site, outputs, to_column, tile = 2, OUTPUTS_2, OUTPUTS_0 + OUTPUTS_1, tile - TILES_1
    elif tile >= TILES_0:
        site, outputs, to_column, tile = 1, OUTPUTS_1, OUTPUTS_0, tile - TILES_0
    column = tile * OUTPUT_TILE + tl.arange(0, OUTPUT_TILE)
    is_column = (column < outputs)[None, :]
    num_blocks = tl.load(num_blocks_at)
    for block in range(tl.program_id(1), max_blocks, tl.num_programs(1)):
        entry = table_row + site * SLOTS + tl.load(block_slot_at + block)
        rank, scale = tl.load(rank_table_at + entry), tl.load(scale_table_at + entry)
        b_at = arena_at + tl.multiple_of(tl.load(b_table_at + entry), 8)
        row = tl.load(sorted_rows_at + block * ROWS + tl.arange(0, ROWS))
        if (rank > 0) & (block < num_blocks):
            is_row = (row >= 0)[:, None]
            h_row = h_at + row.to(tl.int64)[:, None] * WIDTH + site * MAX_RANK
            into = y_at + row.to(tl.int64)[:, None] * STRIDE + to_column + column[None, :]
            y = tl.load(into, mask=is_row & is_column, other=0.0)
            delta = tl.zeros((ROWS, OUTPUT_TILE), tl.float32)
            for first in range(0, rank, RANK_TILE):
                each = first + tl.arange(0, RANK_TILE)
                is_rank = each < rank
                is_read = is_row & (each < (rank + 3) // 4 * 4)[None, :]  # 16 bytes at once
                h = sum_planes(h_row + each[None, :], is_read, num_rows.to(tl.int64) * WIDTH, PLANES)
                h = tl.where(is_rank[None, :], h, 0.0)  # what was read beyond is stale
                b_tile = b_at + each[:, None] * outputs + column[None, :]
                b = tl.load(b_tile, mask=is_rank[:, None] & is_column, other=0.0)
                delta = tl.dot(h.to(tl.bfloat16), b, delta)
            y = y.to(tl.float32) + delta * scale
            tl.store(into, y.to(y_at.dtype.element_ty), mask=is_row & is_column)


@triton.jit
def sum_planes(
    h_tile: tl.tensor, is_read: tl.tensor, plane_stride: tl.tensor, PLANES: tl.constexpr
) -> tl.tensor:
    h = tl.load(h_tile, mask=is_read, other=0.0)
    for plane in tl.static_range(1, PLANES):
        h += tl.load(h_tile + plane * plane_stride, mask=is_read, other=0.0)
    return h
