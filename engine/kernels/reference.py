"""The torch twins of the C++ kernels: the same results by the obvious road, a row at a time where that is
plainest.

They serve where no compiler is at hand. Sums run in torch's order, so only the tolerance is promised, not
the bits.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from engine.kernels.lora import GROUPS, LoraStep
from engine.kernels.shapes import E4M3_MOST, LANES, AttentionShape, Chunks, HeadNorms, LayerCache


class ReferenceKernels:
    def add_norm(self, residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        if delta is not None:
            residual += delta
        return norm(residual, weight, eps).to(weight.dtype)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.float().chunk(2, dim=1)
        return (functional.silu(gate) * up).to(gate_up.dtype)

    def rotate_and_store(
        self,
        shape: AttentionShape,
        chunks: Chunks,
        qkv: Tensor,
        norms: HeadNorms | None,
        cos_sin: Tensor,
        cache: LayerCache,
    ) -> Tensor:
        heads, kv_heads = shape.num_heads, shape.num_kv_heads
        positions, blocks = _places(shape, chunks)
        parts = qkv[: len(positions)].float().view(-1, heads + 2 * kv_heads, shape.head_dim)
        q, k, v = torch.split(parts, [heads, kv_heads, kv_heads], dim=1)
        if norms is not None:
            q, k = norm(q, norms.query, shape.norm_eps), norm(k, norms.key, shape.norm_eps)
        cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=2)
        k = rotate(k, cos, sin)
        at, block = torch.tensor(positions), torch.tensor(blocks)
        cell, lane = at % shape.block_size // LANES, at % LANES
        cache.keys[block, cell, :, : shape.head_dim, lane] = stored(k, cache.keys, cache.key_scale)
        cache.values[block, cell, :, lane, : shape.head_dim] = stored(v, cache.values, cache.value_scale)
        padding = qkv.shape[0] - len(positions)
        return functional.pad(rotate(q, cos, sin), (0, 0, 0, 0, 0, padding)).contiguous()

    def attend(self, shape: AttentionShape, chunks: Chunks, q: Tensor, cache: LayerCache) -> Tensor:
        out = torch.empty(q.shape[0], shape.num_heads, shape.head_dim)
        for first, count, position, start in chunks.rows.tolist():
            length = position + count
            table = chunks.tables[start : start + -(-length // shape.block_size)].long()
            keys = cache.keys[table].permute(2, 0, 1, 4, 3).flatten(1, 3).float() * cache.key_scale
            values = cache.values[table].permute(2, 0, 1, 3, 4).flatten(1, 3).float() * cache.value_scale
            keys = keys[:, :length, : shape.head_dim].repeat_interleave(shape.group, 0)
            values = values[:, :length, : shape.head_dim].repeat_interleave(shape.group, 0)
            scores = q[first : first + count].transpose(0, 1) @ keys.transpose(1, 2) * shape.scale
            seen = torch.arange(length) <= torch.arange(position, length).unsqueeze(1)
            weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
            out[first : first + count] = (weights @ values).transpose(0, 1)
        return out.flatten(1).to(torch.bfloat16 if cache.is_fp8 else cache.keys.dtype)

    def lora(self, step: LoraStep, layer: int, group: str, x: Tensor, y: Tensor) -> None:
        for slot, start, count in step.segments:
            rows = step.rows[start : start + count].long()
            adapter = step.table.adapters[slot]
            assert adapter is not None
            column = 0
            for site in GROUPS[group]:
                outputs = step.table.sites[site][1]
                if factors := adapter.modules.get((layer, site)):
                    delta = x[rows].float() @ factors.a.float().T @ factors.b.float() * factors.scale
                    target = y[rows, column : column + outputs].float() + delta
                    y[rows, column : column + outputs] = target.to(y.dtype)
                column += outputs


def stored(x: Tensor, cache: Tensor, scale: float) -> Tensor:
    """What isn't finite becomes NaN in FP8, not the largest number: it must be found where it is read."""
    if cache.dtype is not torch.float8_e4m3fn:
        return x.to(cache.dtype)
    scaled = (x / scale).clamp(-E4M3_MOST, E4M3_MOST)
    return torch.where(x.isfinite(), scaled, torch.nan).to(cache.dtype)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=2)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=2)


def _places(shape: AttentionShape, chunks: Chunks) -> tuple[list[int], list[int]]:
    """Position and block of every token."""
    tables = chunks.tables.tolist()
    positions = [(p, start) for _, count, at, start in chunks.rows.tolist() for p in range(at, at + count)]
    return [p for p, _ in positions], [tables[start + p // shape.block_size] for p, start in positions]
