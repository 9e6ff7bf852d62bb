"""The seam between the forward pass and whatever computes it: `Kernels`, one call an op, for any device.

What a step looks like to the kernels, how a KV cache lies and where adapters are held belong to the kernels:
the model passes a `StepMeta` through and reads of it the tokens alone. `engine.kernels.host.HostKernels`
serves on CPU (over `HostOps`: C++, or its torch twins), `engine.kernels.gpu.GpuKernels` on a GPU.

On CPU the cache of one layer is cut into cells of 16 positions, so that one vector holds one dimension of 16
keys: K `[num_blocks, cells, num_kv_heads, padded_dim, 16]` and V `[num_blocks, cells, num_kv_heads, 16,
padded_dim]`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from engine.core.plan import Row
from engine.kernels.lora import KernelAdapter, LoraStep

LANES = 16
MAX_GROUPED = 64  # query heads in one attention task
MAX_HEAD_DIM = 512
E4M3_MOST = 448.0  # the largest number of float8_e4m3fn


@dataclass(frozen=True, slots=True)
class AttentionShape:
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    scale: float
    norm_eps: float

    def __post_init__(self) -> None:
        assert self.block_size % LANES == 0, "a block holds whole cells of 16 positions"
        assert self.num_heads % self.num_kv_heads == 0
        assert self.head_dim % 2 == 0

    @property
    def padded_dim(self) -> int:
        return -(-self.head_dim // LANES) * LANES

    @property
    def group(self) -> int:
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True, slots=True)
class Chunks:
    """Consecutive tokens of one sequence each, in token order.

    `rows` int32 [num_chunks, 4]: first token, number of tokens, position of the first, start in `tables`.
    `tables` int32 [n]: the block tables of the sequences, one after the other.
    """

    rows: Tensor
    tables: Tensor


@dataclass(frozen=True, slots=True)
class LayerCache:
    """K and V of one layer, laid out as the kernels want. A cache of float8_e4m3fn holds `x / scale`,
    saturated to ±448; in any other dtype the scales are 1."""

    keys: Tensor
    values: Tensor
    key_scale: float = 1.0
    value_scale: float = 1.0

    @property
    def is_fp8(self) -> bool:
        """The model's own dtype is bfloat16 then."""
        return self.keys.dtype is torch.float8_e4m3fn


def new_cache(
    shape: AttentionShape,
    num_blocks: int,
    dtype: torch.dtype,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
) -> LayerCache:
    """The CPU layout, zeroed: stale lanes of a cell are weighed with zero, and zero times NaN would not be
    zero."""
    cells, dim = shape.block_size // LANES, shape.padded_dim
    return LayerCache(
        torch.zeros(num_blocks, cells, shape.num_kv_heads, dim, LANES, dtype=dtype),
        torch.zeros(num_blocks, cells, shape.num_kv_heads, LANES, dim, dtype=dtype),
        key_scale,
        value_scale,
    )


def cut_chunks(rows: Sequence[tuple[int, int, Sequence[int]]], shape: AttentionShape) -> Chunks:
    """Chunks for rows of (number of tokens, first position, block table), in token order.

    Long rows are cut so that one attention task stays small; where they are cut changes no result.
    """
    most = max(1, MAX_GROUPED // 2 // shape.group)
    cut: list[tuple[int, int, int, int]] = []
    tables: list[int] = []
    token = 0
    for count, position, table in rows:
        start = len(tables)
        tables.extend(table)
        for done in range(0, count, most):
            cut.append((token + done, min(most, count - done), position + done, start))
        token += count
    return Chunks(torch.tensor(cut, dtype=torch.int32), torch.tensor(tables, dtype=torch.int32))


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Qwen3's norms of each head of q and k: weights [head_dim]."""

    query: Tensor
    key: Tensor


class StepMeta(Protocol):
    """What the kernels keep of a step. Rows beyond the plan's tokens are padding: computed like others, read
    by nobody."""

    @property
    def tokens(self) -> Tensor:
        """Token ids [num_rows], on the kernels' device."""
        ...


class AdapterSlots(Protocol):
    """Where adapters lie for the kernels, by slot. Called from the step thread alone."""

    def install(self, slot: int, adapter: KernelAdapter) -> None: ...

    def clear(self, slot: int) -> None:
        """Empty the slot, so that stale weights can't be read."""
        ...


Product = Callable[[Tensor], Tensor]
"""A base linear: [rows, in] → [rows, out], contiguous and writable."""

M = TypeVar("M", bound=StepMeta)
M_co = TypeVar("M_co", bound=StepMeta, covariant=True)


class StepKernels(Protocol[M_co]):
    """What every backend makes: caches, slots and steps. `M_co` is its own kind of `StepMeta`."""

    def new_cache(
        self,
        shape: AttentionShape,
        num_blocks: int,
        dtype: torch.dtype,
        key_scale: float = 1.0,
        value_scale: float = 1.0,
    ) -> LayerCache:
        """The zeroed cache of one layer."""
        ...

    def new_slots(
        self, num_slots: int, num_layers: int, sites: Mapping[str, tuple[int, int]]
    ) -> AdapterSlots:
        """Empty slots; `sites`: (in, out) of the seven linear sites."""
        ...

    def plan(self, shape: AttentionShape, rows: Sequence[Row], slots: AdapterSlots) -> M_co:
        """The rows of a step as the ops below read them, their tokens in order; `slots` is what `new_slots`
        gave."""
        ...


class Kernels(StepKernels[M], Protocol[M]):
    """One backend, op by op."""

    def add_norm(self, residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """`residual` (float32 [rows, width]) += `delta`; its RMS norm times `weight`, in the weight's
        dtype."""
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """[rows, 2 * width] → silu(gate) * up [rows, width]."""
        ...

    def rotate_and_store(
        self,
        shape: AttentionShape,
        meta: M,
        qkv: Tensor,
        norms: HeadNorms | None,
        cos_sin: Tensor,
        cache: LayerCache,
    ) -> Tensor:
        """Norm and rotate q and k of `qkv` [num_rows, (heads + 2 kv) * dim] by `cos_sin` float32 [positions,
        dim] (cosines, then sines, of half a head); store k and v; return q [num_rows, heads, dim]."""
        ...

    def attend(self, shape: AttentionShape, meta: M, q: Tensor, cache: LayerCache) -> Tensor:
        """Causal attention over the cache: [num_rows, heads * dim] in the model's dtype. Padding holds
        anything."""
        ...

    def adapted(self, meta: M, layer: int, group: str, product: Product, x: Tensor) -> Tensor:
        """`product(x)`, and to each row that has an adapter scale * B(A x) added for the sites of the fused
        group. The two may run side by side."""
        ...


class HostOps(Protocol):
    """The ops of a CPU, over host memory. Results of a row never depend on which other rows are in the
    call."""

    def add_norm(self, residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """`residual` (float32 [rows, width]) += `delta`; its RMS norm times `weight`, in the weight's
        dtype."""
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """[rows, 2 * width] → silu(gate) * up [rows, width]."""
        ...

    def rotate_and_store(
        self,
        shape: AttentionShape,
        chunks: Chunks,
        qkv: Tensor,
        norms: HeadNorms | None,
        cos_sin: Tensor,
        cache: LayerCache,
    ) -> Tensor:
        """Norm and rotate q and k of `qkv` [tokens, (heads + 2 kv) * dim] by `cos_sin` float32 [positions,
        dim] (cosines, then sines, of half a head); store k and v; return q float32 [tokens, heads, dim]."""
        ...

    def attend(self, shape: AttentionShape, chunks: Chunks, q: Tensor, cache: LayerCache) -> Tensor:
        """Causal attention over the cache; [tokens, heads * dim] in the cache's dtype."""
        ...

    def lora(self, step: LoraStep, layer: int, group: str, x: Tensor, y: Tensor) -> None:
        """`y`[row, columns of site] += scale * B(A `x`[row]) for the sites of a fused group, in place."""
        ...
