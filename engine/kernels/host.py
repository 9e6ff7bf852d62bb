"""`Kernels` on a CPU: a step's metadata, cells of KV and the slot table in host memory, over C++ ops or their
torch twins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.core.plan import Row
from engine.kernels.lora import LoraStep, SlotTable, plan_lora
from engine.kernels.shapes import (
    AdapterSlots,
    AttentionShape,
    Chunks,
    HeadNorms,
    HostOps,
    LayerCache,
    Product,
    cut_chunks,
    new_cache,
)
from engine.model.linear import padded_rows


@dataclass(frozen=True, slots=True)
class HostStep:
    """Rows beyond `num_tokens` are padding (`linear.padded_rows`)."""

    tokens: Tensor  # int64 [num_rows], num_rows >= num_tokens
    num_tokens: int
    chunks: Chunks
    lora: LoraStep | None


class HostKernels:
    """`engine.kernels.shapes.Kernels` over the ops of a CPU."""

    def __init__(self, ops: HostOps) -> None:
        self._ops = ops
        self.add_norm = ops.add_norm
        self.silu_mul = ops.silu_mul

    def new_cache(
        self,
        shape: AttentionShape,
        num_blocks: int,
        dtype: torch.dtype,
        key_scale: float = 1.0,
        value_scale: float = 1.0,
    ) -> LayerCache:
        return new_cache(shape, num_blocks, dtype, key_scale, value_scale)

    def new_slots(self, num_slots: int, num_layers: int, sites: Mapping[str, tuple[int, int]]) -> SlotTable:
        return SlotTable(num_slots, num_layers, sites)

    def plan(self, shape: AttentionShape, rows: Sequence[Row], slots: AdapterSlots) -> HostStep:
        assert isinstance(slots, SlotTable)
        tokens = [token for row in rows for token in row.tokens]
        padding = [0] * (padded_rows(len(tokens)) - len(tokens))
        return HostStep(
            torch.tensor(tokens + padding, dtype=torch.int64),
            len(tokens),
            cut_chunks([(len(row.tokens), row.start, row.block_table) for row in rows], shape),
            plan_lora(slots, [(row.slot, len(row.tokens)) for row in rows]),
        )

    def rotate_and_store(
        self,
        shape: AttentionShape,
        meta: HostStep,
        qkv: Tensor,
        norms: HeadNorms | None,
        cos_sin: Tensor,
        cache: LayerCache,
    ) -> Tensor:
        return self._ops.rotate_and_store(shape, meta.chunks, qkv, norms, cos_sin, cache)

    def attend(self, shape: AttentionShape, meta: HostStep, q: Tensor, cache: LayerCache) -> Tensor:
        attended = self._ops.attend(shape, meta.chunks, q, cache)
        attended[meta.num_tokens :].zero_()  # no chunk wrote there
        return attended

    def adapted(self, meta: HostStep, layer: int, group: str, product: Product, x: Tensor) -> Tensor:
        y = product(x)
        if meta.lora is not None:
            self._ops.lora(meta.lora, layer, group, x, y)
        return y
