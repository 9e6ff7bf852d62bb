"""The SGMV kernels as compiled for Hopper, at the shapes of Llama-3.1-8B and of a base whose sizes are no
multiple of a tile."""

from __future__ import annotations

import re

import pytest

from engine.kernels.adapter_arena import ArenaLayout
from engine.kernels.lora import GROUPS
from engine.kernels.sgmv import (
    expand_constants,
    expand_kernel,
    expand_tiles,
    shrink_constants,
    shrink_kernel,
    shrink_tiles,
)
from engine.kernels.sgmv_plan import DECODE_BLOCK_ROWS, PREFILL_BLOCK_ROWS, sort_rows
from tests.engine.kernels.hopper import Compiled, HopperCompiler

NUM_SLOTS = 32
PLAN = {"table_row": "i32", "sorted_rows_at": "*i32", "block_slot_at": "*i32", "num_blocks_at": "*i32"}
SHRINK = {"x_at": "*bf16", "h_at": "*fp32", "a_table_at": "*i64"}
EXPAND = {"h_at": "*fp32", "y_at": "*bf16", "b_table_at": "*i64", "scale_table_at": "*fp32"}
BOTH = PLAN | {"arena_at": "*bf16", "rank_table_at": "*i32", "num_rows": "i32", "max_blocks": "i32"}


def llama_like(hidden: int, inner: int, kv: int) -> ArenaLayout:
    narrow, wide = (hidden, kv), (hidden, inner)
    shapes = ((hidden, hidden), narrow, narrow, (hidden, hidden), wide, wide, (inner, hidden))
    sites = [site for members in GROUPS.values() for site in members]
    return ArenaLayout(32, dict(zip(sites, shapes, strict=True)))


LLAMA_8B = llama_like(4096, 14336, 1024)
SMOLLM = llama_like(576, 1536, 192)


def compiled_shrink(hopper: HopperCompiler, layout: ArenaLayout, group: str, block_rows: int) -> Compiled:
    constants = shrink_constants(layout, NUM_SLOTS, group, block_rows)
    tiles = shrink_tiles(constants["INPUTS"], block_rows)
    return hopper.compile(shrink_kernel, SHRINK | BOTH, constants, tiles.num_warps, tiles.num_stages)


def compiled_expand(hopper: HopperCompiler, layout: ArenaLayout, group: str, block_rows: int) -> Compiled:
    constants = expand_constants(layout, NUM_SLOTS, group, block_rows)
    tiles = expand_tiles(sum(layout.sites[site][1] for site in GROUPS[group]), block_rows)
    return hopper.compile(expand_kernel, EXPAND | BOTH, constants, tiles.num_warps, tiles.num_stages)


@pytest.mark.parametrize("compiled", [compiled_shrink, compiled_expand])
@pytest.mark.parametrize("block_rows", [DECODE_BLOCK_ROWS, PREFILL_BLOCK_ROWS])
@pytest.mark.parametrize(
    ("layout", "group"),
    [(LLAMA_8B, "qkv"), (LLAMA_8B, "gate_up"), (LLAMA_8B, "down"), (SMOLLM, "qkv")],
    ids=["8b-qkv", "8b-gate_up", "8b-down", "smollm-qkv"],
)
def test_tiles_use_tensor_cores_and_spill_nothing(
    hopper: HopperCompiler, compiled: object, layout: ArenaLayout, group: str, block_rows: int
) -> None:
    assert callable(compiled)
    kernel: Compiled = compiled(hopper, layout, group, block_rows)
    assert kernel.stack_bytes == 0
    assert kernel.shared_bytes <= 75 * 1024  # three programs on a multiprocessor
    product = "wgmma.mma_async" if block_rows == PREFILL_BLOCK_ROWS else "mma.sync.aligned.m16n8k16"
    assert product in kernel.ptx
    assert "cp.async.cg.shared.global" in kernel.ptx, "factors and rows are read 16 bytes at a time"
    assert not re.search(r"cp\.async\.ca|ld\.global\.b16", kernel.ptx)
    assert not re.search(r"\b(atom|red)\.", kernel.ptx), "sums have a fixed order"


@pytest.mark.parametrize(("rows", "chunk"), [(DECODE_BLOCK_ROWS, 128), (PREFILL_BLOCK_ROWS, 1024)])
def test_the_sort_of_rows_compiles(hopper: HopperCompiler, rows: int, chunk: int) -> None:
    pointers = {"token_slot_at": "*i32", "num_tokens_at": "*i32", "num_rows": "i32"} | PLAN
    del pointers["table_row"]
    sizes = {"BLOCK_ROWS": rows, "SLOTS": NUM_SLOTS, "CHUNK": chunk}
    assert hopper.compile(sort_rows, pointers, sizes).stack_bytes == 0
