"""The torch twins of the GPU kernels: the same results by the obvious road, a row at a time.

They read the device's tensors on the host, so they are for tests and for `tests/gpu`, not for serving.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from engine.kernels.attention_plan import AttentionRows
from engine.kernels.reference import norm, rotate, stored
from engine.kernels.shapes import AttentionShape, HeadNorms, LayerCache


def attend(shape: AttentionShape, rows: AttentionRows, q: Tensor, cache: LayerCache, out: Tensor) -> None:
    """`engine.kernels.paged_attention.attend` in float32, with one softmax over all keys of a query."""
    for first, position, cells in _live_rows(shape, rows):
        count = len(cells) - position
        keys, values = (
            Cells(half)[cells].float().repeat_interleave(shape.group, 1) * scale
            for half, scale in ((cache.keys, cache.key_scale), (cache.values, cache.value_scale))
        )
        scores = torch.einsum("qhd,khd->hqk", q[first : first + count].float(), keys) * shape.scale
        places = torch.arange(len(cells), device=cells.device)
        seen = places <= places[position:].unsqueeze(1)
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        out[first : first + count] = torch.einsum("hqk,khd->qhd", weights, values).to(out.dtype)


def rotate_and_store(
    shape: AttentionShape,
    rows: AttentionRows,
    qkv: Tensor,
    norms: HeadNorms | None,
    cos_sin: Tensor,
    cache: LayerCache,
    q_out: Tensor,
) -> None:
    """`engine.kernels.kv_write.rotate_and_store`, from the rows themselves."""
    heads, kv_heads = shape.num_heads, shape.num_kv_heads
    for first, position, cells in _live_rows(shape, rows):
        mine, count = cells[position:], len(cells) - position
        parts = qkv[first : first + count].float().view(count, heads + 2 * kv_heads, shape.head_dim)
        q, k, v = torch.split(parts, [heads, kv_heads, kv_heads], dim=1)
        if norms is not None:
            q, k = norm(q, norms.query, shape.norm_eps), norm(k, norms.key, shape.norm_eps)
        cos, sin = cos_sin[position : position + count].unsqueeze(1).chunk(2, dim=2)
        q_out[first : first + count] = rotate(q, cos, sin).to(q_out.dtype)
        Cells(cache.keys)[mine] = stored(rotate(k, cos, sin), cache.keys, cache.key_scale)
        Cells(cache.values)[mine] = stored(v, cache.values, cache.value_scale)


def _live_rows(shape: AttentionShape, rows: AttentionRows) -> Iterator[tuple[int, int, Tensor]]:
    """First token, position, and the cells of all positions up to the row's last, of each live row."""
    for row in range(int(rows.num_rows)):
        first, count = int(rows.first_token[row]), int(rows.num_tokens[row])
        position = int(rows.position[row])
        places = torch.arange(position + count, device=rows.block_tables.device)
        blocks = rows.block_tables[row].long()[places // shape.block_size]
        yield first, position, blocks * shape.block_size + places % shape.block_size


class Cells:
    """K or V `[num_blocks, kv_heads, block_size, dim]` by cell: [cells, kv_heads, dim]. FP8 moves as bytes,
    which torch can index everywhere."""

    def __init__(self, half: Tensor) -> None:
        self._dtype = half.dtype
        self._half = half.view(torch.uint8) if half.dtype is torch.float8_e4m3fn else half

    def __getitem__(self, cells: Tensor) -> Tensor:
        size = self._half.shape[2]
        return self._half[cells // size, :, cells % size].view(self._dtype)

    def __setitem__(self, cells: Tensor, value: Tensor) -> None:
        size = self._half.shape[2]
        assert value.dtype is self._dtype
        self._half[cells // size, :, cells % size] = value.view(self._half.dtype)
