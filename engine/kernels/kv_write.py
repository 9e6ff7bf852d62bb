"""What stands between the QKV product and attention on a GPU (Triton): norms of heads, rotary position, and
the write of keys and values into their pages, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.attention_plan import AttentionPlan, padded
from engine.kernels.rowwise_triton import saturated
from engine.kernels.shapes import AttentionShape, HeadNorms, LayerCache

HEADS_A_PROGRAM = 8
NUM_WARPS = 2


def rotate_and_store(
    shape: AttentionShape,
    plan: AttentionPlan,
    qkv: Tensor,
    norms: HeadNorms | None,
    cos_sin: Tensor,
    cache: LayerCache,
    q_out: Tensor,
) -> None:
    """Norm q and k by head, rotate them, store k and v, put q into `q_out`.

    `qkv` [capacity, (heads + 2 kv) * dim] and `q_out` [capacity, heads, dim]: float32 or bfloat16.
    `cos_sin`: float32 [positions, dim] as `Rope.table` gives it (pairs are dimension i and i + dim / 2).
    A cache of float8_e4m3fn gets `x / scale` to nearest even, saturated to ±448; what is not finite becomes
    NaN. Tokens that `plan` calls padding write nothing. One launch.
    """
    expected = (shape.num_kv_heads, shape.block_size, shape.head_dim)
    for half in (cache.keys, cache.values):
        assert tuple(half.shape[1:]) == expected
        assert half.is_contiguous()
    lines = shape.num_heads + 2 * shape.num_kv_heads
    capacity = qkv.shape[0]
    assert qkv.shape == (capacity, lines * shape.head_dim)
    assert q_out.shape == (capacity, shape.num_heads, shape.head_dim)
    assert capacity <= plan.token_cell.shape[0]
    assert qkv.is_contiguous() and q_out.is_contiguous() and cos_sin.is_contiguous()  # noqa: PT018
    _rotate_kernel[(capacity, triton.cdiv(lines, HEADS_A_PROGRAM))](
        qkv, cos_sin, plan.token_position, plan.token_cell,
        norms.query if norms else cos_sin, norms.key if norms else cos_sin,
        q_out, cache.keys, cache.values, shape.norm_eps, cache.key_scale, cache.value_scale,
        **constants(shape, normed=norms is not None, fp8=cache.keys.dtype is torch.float8_e4m3fn),
        num_warps=NUM_WARPS,
    )  # fmt: skip


def constants(shape: AttentionShape, *, normed: bool, fp8: bool) -> dict[str, int]:
    half = shape.head_dim // 2
    return {
        "HEADS": shape.num_heads,
        "KV_HEADS": shape.num_kv_heads,
        "HALF": half,
        "HALF_PAD": padded(half),
        "BLOCK_SIZE": shape.block_size,
        "LINES": HEADS_A_PROGRAM,
        "NORMED": normed,
        "FP8": fp8,
    }


@triton.jit
def _rotate_kernel(
    qkv: tl.tensor, cos_sin: tl.tensor, token_position: tl.tensor, token_cell: tl.tensor,
    query_norm: tl.tensor, key_norm: tl.tensor, q_out: tl.tensor, keys: tl.tensor, values: tl.tensor,
    eps: tl.tensor, key_scale: tl.tensor, value_scale: tl.tensor,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, HALF_PAD: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, LINES: tl.constexpr, NORMED: tl.constexpr, FP8: tl.constexpr,
) -> None:  # fmt: skip
    """One program a token and `LINES` of its heads: first those of q, then of k, then of v."""
    token = tl.program_id(0)
    cell = tl.load(token_cell + token)
    if cell < 0:
        return
    line = tl.program_id(1) * LINES + tl.arange(0, LINES)
    is_q = line < HEADS
    is_k = (line >= HEADS) & (line < HEADS + KV_HEADS)
    is_v = (line >= HEADS + KV_HEADS) & (line < HEADS + 2 * KV_HEADS)
    dim = tl.arange(0, HALF_PAD)
    exists = dim < HALF
    mask = (line < HEADS + 2 * KV_HEADS)[:, None] & exists[None, :]
    at = qkv + (token.to(tl.int64) * (HEADS + 2 * KV_HEADS) + line)[:, None] * (2 * HALF) + dim[None, :]
    low = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(at + HALF, mask=mask, other=0.0).to(tl.float32)
    if NORMED:
        mean = (tl.sum(low * low, 1) + tl.sum(high * high, 1)) / (2 * HALF)
        strength = tl.where(is_v, 1.0, tl.rsqrt(mean + eps))[:, None]
        low = low * strength * _norm_weights(query_norm, key_norm, is_q, is_v, dim, exists)
        high = high * strength * _norm_weights(query_norm + HALF, key_norm + HALF, is_q, is_v, dim, exists)
    angle = cos_sin + tl.load(token_position + token).to(tl.int64) * (2 * HALF) + dim
    cos = tl.load(angle, mask=exists, other=0.0)[None, :]
    sin = tl.load(angle + HALF, mask=exists, other=0.0)[None, :]
    turned_low = tl.where(is_v[:, None], low, low * cos - high * sin)
    turned_high = tl.where(is_v[:, None], high, high * cos + low * sin)
    to_q = q_out + (token.to(tl.int64) * HEADS + line)[:, None] * (2 * HALF) + dim[None, :]
    tl.store(to_q, turned_low.to(q_out.dtype.element_ty), mask=mask & is_q[:, None])
    tl.store(to_q + HALF, turned_high.to(q_out.dtype.element_ty), mask=mask & is_q[:, None])
    if FP8:
        scale = tl.where(is_v, value_scale, key_scale)[:, None]
        turned_low = saturated(tl.div_rn(turned_low, scale))
        turned_high = saturated(tl.div_rn(turned_high, scale))
    stored_low = turned_low.to(keys.dtype.element_ty)
    stored_high = turned_high.to(keys.dtype.element_ty)
    head = tl.where(is_v, line - HEADS - KV_HEADS, line - HEADS)
    block = (cell // BLOCK_SIZE).to(tl.int64)
    place = (block * KV_HEADS + head) * BLOCK_SIZE + cell % BLOCK_SIZE
    offset = place[:, None] * (2 * HALF) + dim[None, :]
    tl.store(keys + offset, stored_low, mask=mask & is_k[:, None])
    tl.store(keys + offset + HALF, stored_high, mask=mask & is_k[:, None])
    tl.store(values + offset, stored_low, mask=mask & is_v[:, None])
    tl.store(values + offset + HALF, stored_high, mask=mask & is_v[:, None])


@triton.jit
def _norm_weights(
    query_norm: tl.tensor,
    key_norm: tl.tensor,
    is_q: tl.tensor,
    is_v: tl.tensor,
    dim: tl.tensor,
    exists: tl.tensor,
) -> tl.tensor:
    of_q = tl.load(query_norm + dim, mask=exists, other=0.0).to(tl.float32)
    of_k = tl.load(key_norm + dim, mask=exists, other=0.0).to(tl.float32)
    return tl.where(is_v[:, None], 1.0, tl.where(is_q[:, None], of_q[None, :], of_k[None, :]))
