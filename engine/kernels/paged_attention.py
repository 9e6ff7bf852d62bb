"""Attention over paged keys and values on a GPU (Triton), for decode rows and prefill chunks in one call.

K and V of a layer are `[num_blocks, num_kv_heads, block_size, head_dim]` in q's dtype or float8_e4m3fn. The
heads of a group share each load of K and V: they are the rows of one matrix product.

Decode (one query a row) is split over the sequence and merged by a second kernel in an order that is fixed
(Dao et al., Flash-Decoding, 2023); prefill keeps a running softmax over tiles of keys at absolute positions
(Dao, FlashAttention-2, 2023, section 3). Neither uses atomics: the bits of a row depend on its own keys and
on which of the two kernels it takes, never on other rows or on the capacity of the call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.attention_plan import (
    MAX_PARTS,
    AttentionPlan,
    AttentionRows,
    max_tiles,
    padded,
    tile_rows,
    tile_tokens,
)
from engine.kernels.shapes import AttentionShape, LayerCache


@dataclass(frozen=True, slots=True)
class PartialPlanes:
    """What the parts of decode rows leave for the merge: float32, read only where the same call wrote."""

    top: Tensor  # [max_rows * MAX_PARTS, num_heads]: largest score, in powers of two
    total: Tensor  # the same shape: sum of weights
    sums: Tensor  # [max_rows * MAX_PARTS, num_heads, head_dim]: weighted values


@dataclass(frozen=True, slots=True)
class Tile:
    keys: int
    num_warps: int
    num_stages: int


def new_planes(shape: AttentionShape, max_rows: int, device: torch.device | str) -> PartialPlanes:
    """`32 * max_rows * num_heads * (head_dim + 2)` floats: 0.5 MB a row for Llama-3.1-8B. One set serves all
    layers."""
    parts = max_rows * MAX_PARTS
    empty = [
        torch.zeros(parts, shape.num_heads, *rest, dtype=torch.float32, device=device)
        for rest in ((), (), (shape.head_dim,))
    ]
    return PartialPlanes(*empty)


def decode_tile(shape: AttentionShape) -> Tile:
    return Tile(keys=64, num_warps=4, num_stages=5) if shape.head_dim <= 128 else Tile(32, 4, 5)


def prefill_tile(shape: AttentionShape) -> Tile:
    return Tile(keys=64, num_warps=8, num_stages=5) if shape.head_dim <= 128 else Tile(32, 8, 2)


def attend(
    shape: AttentionShape,
    rows: AttentionRows,
    plan: AttentionPlan,
    planes: PartialPlanes,
    q: Tensor,
    cache: LayerCache,
    out: Tensor,
    *,
    programs: int,
    prefill: bool = True,
) -> None:
    """Causal attention of all rows over the cache, which holds their own keys already.

    `q` and `out` [capacity, num_heads, head_dim]: float32 or bfloat16, contiguous; lines of `out` for padding
    tokens become zero. `programs` bounds the decode grid (four times the number of SMs fills them); it
    changes no result. `prefill=False` leaves that kernel out where the caller knows that each row has one
    token. Three launches, or two; no synchronization.
    """
    _check(shape, q, cache, out)
    capacity = q.shape[0]
    max_rows, max_blocks = rows.block_tables.shape
    scale = shape.scale * cache.key_scale * math.log2(math.e)
    tile = decode_tile(shape)
    _decode_kernel[(min(programs, min(max_rows, capacity) * MAX_PARTS * shape.num_kv_heads),)](
        rows.block_tables, rows.first_token, rows.position, plan.part_length, plan.parts, plan.counts,
        q, cache.keys, cache.values, planes.top, planes.total, planes.sums, out,
        max_blocks, scale, cache.value_scale,
        **decode_constants(shape), num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    _merge_kernel[(min(max_rows, capacity), shape.num_heads)](
        rows.num_tokens, rows.position, rows.num_rows, rows.first_token,
        plan.part_length, plan.counts, capacity,
        planes.top, planes.total, planes.sums, out, cache.value_scale,
        HEADS=shape.num_heads, DIM=shape.head_dim, DIM_PAD=padded(shape.head_dim),
        MAX_PARTS=MAX_PARTS, num_warps=4,
    )  # fmt: skip
    if not prefill:
        return
    tile = prefill_tile(shape)
    num_stages = tile.num_stages if q.element_size() == 2 else 2  # float32, for tests, must fit as well
    _prefill_kernel[(shape.num_kv_heads, max_tiles(max_rows, capacity, plan.tile_tokens))](
        rows.block_tables, rows.first_token, rows.num_tokens, rows.position, plan.tiles, plan.counts,
        q, cache.keys, cache.values, out, max_blocks, scale, cache.value_scale,
        **prefill_constants(shape), num_warps=tile.num_warps, num_stages=num_stages,
    )  # fmt: skip


def _check(shape: AttentionShape, q: Tensor, cache: LayerCache, out: Tensor) -> None:
    expected = (shape.num_kv_heads, shape.block_size, shape.head_dim)
    for tensor in (cache.keys, cache.values):
        assert tuple(tensor.shape[1:]) == expected
        assert tensor.is_contiguous()
    assert cache.keys.shape[0] * shape.block_size < 2**31, "cells are counted in int32"
    assert q.shape == out.shape == (q.shape[0], shape.num_heads, shape.head_dim)
    assert q.is_contiguous()
    assert out.is_contiguous()


def decode_constants(shape: AttentionShape) -> dict[str, int]:
    return _constants(shape, decode_tile(shape)) | {"GROUP_PAD": padded(shape.group), "MAX_PARTS": MAX_PARTS}


def prefill_constants(shape: AttentionShape) -> dict[str, int]:
    return _constants(shape, prefill_tile(shape)) | {"ROWS": tile_rows(shape), "TOKENS": tile_tokens(shape)}


def _constants(shape: AttentionShape, tile: Tile) -> dict[str, int]:
    return {
        "HEADS": shape.num_heads,
        "KV_HEADS": shape.num_kv_heads,
        "GROUP": shape.group,
        "DIM": shape.head_dim,
        "DIM_PAD": padded(shape.head_dim),
        "BLOCK_SIZE": shape.block_size,
        "KEYS": tile.keys,
    }


@triton.jit
def _operand(query: tl.tensor, cache: tl.tensor) -> tl.tensor:
    """In the dtype of the products. FP8 codes are numbers of float16 (an instruction for two; bfloat16 takes
    three). A query beyond 65,504 becomes infinite, and what is made of it is found to be no number."""
    if cache.dtype.element_ty.primitive_bitwidth == 8 and query.dtype == tl.bfloat16:
        return query.to(tl.float16)
    else:
        return query


@triton.jit
def _load(
    cache: tl.tensor, table: tl.tensor, start: tl.tensor, end: tl.tensor, kv_head: tl.tensor,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr, BOUNDED: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """`KEYS` positions from `start` on, [KEYS, DIM_PAD]; those from `end` on are zero, and never read: what
    lies there is another sequence's, or nothing."""
    position = start + tl.arange(0, KEYS)
    dim = tl.arange(0, DIM_PAD)
    if BOUNDED:
        block = tl.load(table + position // BLOCK_SIZE, mask=position < end, other=0)
    else:
        block = tl.load(table + position // BLOCK_SIZE)
    line = (block.to(tl.int64) * KV_HEADS + kv_head) * BLOCK_SIZE + position % BLOCK_SIZE
    at = cache + line[:, None] * DIM + dim[None, :]
    if BOUNDED:
        loaded = tl.load(at, mask=(position < end)[:, None] & (dim < DIM)[None, :], other=0.0)
    elif DIM != DIM_PAD:
        loaded = tl.load(at, mask=(dim < DIM)[None, :], other=0.0)
    else:
        loaded = tl.load(at)
    return loaded


@triton.jit
def _look_at(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, table: tl.tensor, kv_head: tl.tensor,
    start: tl.tensor, end: tl.tensor, last: tl.tensor, scale: tl.tensor, top: tl.tensor, total: tl.tensor,
    sums: tl.tensor,
    KV_HEADS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr, BOUNDED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """One step of the running softmax of `query` [lines, DIM_PAD]: keys from `start` on, of which line m sees
    those up to position `last`[m]; all of them if not `BOUNDED`. With `scale`, scores are in powers of two.

    `fma` leaves the compiler no choice: it would round a product that is masked before the subtraction, and
    not round one that isn't, and a query's bits would follow how its prompt is cut."""
    k = _load(keys, table, start, end, kv_head, KV_HEADS, DIM, DIM_PAD, BLOCK_SIZE, KEYS, BOUNDED)
    scores = tl.dot(query, k.to(query.dtype).T, input_precision="ieee")
    if BOUNDED:
        seen = (start + tl.arange(0, KEYS))[None, :] <= last[:, None]
        scores = tl.where(seen, scores, -float("inf"))
    v = _load(values, table, start, end, kv_head, KV_HEADS, DIM, DIM_PAD, BLOCK_SIZE, KEYS, BOUNDED)
    new_top = tl.maximum(top, tl.max(scores, 1) * scale)
    weights = tl.exp2(tl.fma(scores, scale, -new_top[:, None]))
    fade = tl.exp2(top - new_top)
    sums = sums * fade[:, None]
    sums = tl.dot(weights.to(query.dtype), v.to(query.dtype), sums, input_precision="ieee")
    return new_top, tl.fma(total, fade, tl.sum(weights, 1)), sums


@triton.jit
def _decode_kernel(
    block_tables: tl.tensor, first_token: tl.tensor, position: tl.tensor, part_length: tl.tensor,
    parts: tl.tensor, counts: tl.tensor, q: tl.tensor, keys: tl.tensor, values: tl.tensor,
    top_plane: tl.tensor, total_plane: tl.tensor, sums_plane: tl.tensor, out: tl.tensor,
    max_blocks: tl.tensor, scale: tl.tensor, value_scale: tl.tensor,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PAD: tl.constexpr,
    DIM: tl.constexpr, DIM_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr, KEYS: tl.constexpr,
    MAX_PARTS: tl.constexpr,
) -> None:  # fmt: skip
    """Programs stride over (part, KV head); a row of one part is finished here."""
    head = tl.arange(0, GROUP_PAD)
    dim = tl.arange(0, DIM_PAD)
    mine = (head < GROUP)[:, None] & (dim < DIM)[None, :]
    for work in range(tl.program_id(0), tl.load(counts) * KV_HEADS, tl.num_programs(0)):
        kv_head = work % KV_HEADS
        row = tl.load(parts + work // KV_HEADS * 2)
        part = tl.load(parts + work // KV_HEADS * 2 + 1)
        length = tl.load(position + row) + 1
        size = tl.load(part_length + row)
        end = tl.minimum(length, (part + 1) * size)
        table = block_tables + row.to(tl.int64) * max_blocks
        heads = kv_head * GROUP + head
        line = tl.load(first_token + row).to(tl.int64) * HEADS + heads
        query = _operand(tl.load(q + line[:, None] * DIM + dim[None, :], mask=mine, other=0.0), keys)
        top = tl.full([GROUP_PAD], -float("inf"), tl.float32)
        total = tl.zeros([GROUP_PAD], tl.float32)
        sums = tl.zeros([GROUP_PAD, DIM_PAD], tl.float32)
        last = tl.zeros([GROUP_PAD], tl.int32) + end - 1
        for start in range(part * size, end, KEYS):
            top, total, sums = _look_at(
                query, keys, values, table, kv_head, start, end, last, scale, top, total, sums,
                KV_HEADS, DIM, DIM_PAD, BLOCK_SIZE, KEYS, True,
            )  # fmt: skip
        if length <= size:
            result = sums / total[:, None] * value_scale
            tl.store(out + line[:, None] * DIM + dim[None, :], result.to(out.dtype.element_ty), mask=mine)
        else:
            plane = (row.to(tl.int64) * MAX_PARTS + part) * HEADS + heads
            tl.store(top_plane + plane, top, mask=head < GROUP)
            tl.store(total_plane + plane, total, mask=head < GROUP)
            tl.store(sums_plane + plane[:, None] * DIM + dim[None, :], sums, mask=mine)


@triton.jit(do_not_specialize=["capacity"])
def _merge_kernel(
    num_tokens: tl.tensor, position: tl.tensor, num_rows: tl.tensor, first_token: tl.tensor,
    part_length: tl.tensor, counts: tl.tensor, capacity: tl.tensor, top_plane: tl.tensor,
    total_plane: tl.tensor, sums_plane: tl.tensor, out: tl.tensor, value_scale: tl.tensor,
    HEADS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, MAX_PARTS: tl.constexpr,
) -> None:  # fmt: skip
    """The parts of a decode row, one program a row and head: loaded at once, absent ones as zeros, and summed
    by one tree whatever their number. The programs also clear the lines of padding tokens, which nobody else
    writes."""
    row, head = tl.program_id(0), tl.program_id(1)
    dim = tl.arange(0, DIM_PAD)
    for padding in range(tl.load(counts + 2) + row, capacity, tl.num_programs(0)):
        line = tl.cast(padding, tl.int64) * HEADS + head
        tl.store(out + line * DIM + dim, tl.zeros([DIM_PAD], out.dtype.element_ty), mask=dim < DIM)
    if row >= tl.load(num_rows):
        return
    if tl.load(num_tokens + row) != 1:
        return
    length = tl.load(position + row) + 1
    size = tl.load(part_length + row)
    if length <= size:
        return
    part = tl.arange(0, MAX_PARTS)
    exists = part < tl.cdiv(length, size)
    plane = row.to(tl.int64) * MAX_PARTS * HEADS + head + part * HEADS
    tops = tl.load(top_plane + plane, mask=exists, other=-float("inf"))
    weights = tl.exp2(tops - tl.max(tops, 0))
    total = tl.sum(weights * tl.load(total_plane + plane, mask=exists, other=0.0), 0)
    at = sums_plane + plane[:, None] * DIM + dim[None, :]
    sums = tl.load(at, mask=exists[:, None] & (dim < DIM)[None, :], other=0.0)
    sums = tl.sum(weights[:, None] * sums, 0)
    result = sums / total * value_scale
    line = tl.load(first_token + row).to(tl.int64) * HEADS + head
    tl.store(out + line * DIM + dim, result.to(out.dtype.element_ty), mask=dim < DIM)


@triton.jit
def _prefill_kernel(
    block_tables: tl.tensor, first_token: tl.tensor, num_tokens: tl.tensor, position: tl.tensor,
    tiles: tl.tensor, counts: tl.tensor, q: tl.tensor, keys: tl.tensor, values: tl.tensor, out: tl.tensor,
    max_blocks: tl.tensor, scale: tl.tensor, value_scale: tl.tensor,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr,
    TOKENS: tl.constexpr, DIM: tl.constexpr, DIM_PAD: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
) -> None:  # fmt: skip
    """One program a tile of `TOKENS` queries and a KV head: line m is head m % GROUP of query m // GROUP."""
    kv_head, tile = tl.program_id(0), tl.program_id(1)
    if tile >= tl.load(counts + 1):
        return
    row = tl.load(tiles + tile * 2)
    first = tl.load(tiles + tile * 2 + 1)
    count = tl.minimum(tl.load(num_tokens + row) - first, TOKENS)
    begin = tl.load(position + row) + first
    table = block_tables + row.to(tl.int64) * max_blocks
    m = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM_PAD)
    token = tl.minimum(m // GROUP, count - 1)  # lines past the last query repeat it, and are not stored
    mine = (m < count * GROUP)[:, None] & (dim < DIM)[None, :]
    line = (tl.load(first_token + row) + first + token).to(tl.int64) * HEADS + kv_head * GROUP + m % GROUP
    query = tl.load(q + line[:, None] * DIM + dim[None, :], mask=(dim < DIM)[None, :], other=0.0)
    query = _operand(query, keys)
    top = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, DIM_PAD], tl.float32)
    end = begin + count
    seen_by_all = (begin + 1) // KEYS * KEYS
    for start in range(0, seen_by_all, KEYS):
        top, total, sums = _look_at(
            query, keys, values, table, kv_head, start, end, begin + token, scale, top, total, sums,
            KV_HEADS, DIM, DIM_PAD, BLOCK_SIZE, KEYS, False,
        )  # fmt: skip
    for start in range(seen_by_all, end, KEYS):
        top, total, sums = _look_at(
            query, keys, values, table, kv_head, start, end, begin + token, scale, top, total, sums,
            KV_HEADS, DIM, DIM_PAD, BLOCK_SIZE, KEYS, True,
        )  # fmt: skip
    result = sums / total[:, None] * value_scale
    tl.store(out + line[:, None] * DIM + dim[None, :], result.to(out.dtype.element_ty), mask=mine)
