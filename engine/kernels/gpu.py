"""`Kernels` on a GPU, over the Triton kernels; in Triton's interpreter the same code runs on a CPU.

Everything that a step's kernels read besides activations lies in tensors that never move (row metadata,
plans, partial planes, adapter tables), sized by capacity: a captured graph replays any step that fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.core.plan import Row
from engine.kernels import kv_write, paged_attention, rowwise_triton, sgmv
from engine.kernels.adapter_arena import AdapterArena, ArenaLayout
from engine.kernels.attention_plan import AttentionRows, build_plan, new_plan
from engine.kernels.gpu_slots import ArenaSlots, new_stream
from engine.kernels.rowwise_triton import Codes
from engine.kernels.sgmv_plan import SgmvPlan, SgmvPlanner
from engine.kernels.shapes import AdapterSlots, AttentionShape, HeadNorms, LayerCache, Product

PROGRAMS_A_PROCESSOR = 4  # of the decode attention, over all multiprocessors
INTERPRETED_PROGRAMS = 4


@dataclass(frozen=True, slots=True)
class GpuStep:
    """A step as the kernels read it. `lora` is None where no row has an adapter, and `groups` are those in
    which one may; `prefill` says whether a row may have more than one token."""

    tokens: Tensor  # int32 [num_rows]
    rows: AttentionRows
    lora: SgmvPlan | None
    groups: frozenset[str]
    prefill: bool


class SideStream:
    """A second stream beside the current one, forked off it and joined to it; without a GPU, nothing."""

    def __init__(self, device: torch.device) -> None:
        self._stream = new_stream(device) if device.type == "cuda" else None

    def fork(self) -> AbstractContextManager[object]:
        """What is launched within starts after all that was launched before, beside what follows."""
        if self._stream is None:
            return nullcontext()
        self._stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self._stream)

    def join(self) -> None:
        """What is launched from here on starts after all that was forked off."""
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)


class GpuKernels:
    """`engine.kernels.shapes.Kernels` for one model on one device. Called from the step thread alone."""

    def __init__(  # noqa: PLR0913 - sizes and kinds, each by name
        self,
        shape: AttentionShape,
        *,
        max_rows: int,
        max_tokens: int,
        layout: ArenaLayout,
        num_slots: int,
        arena_bytes: int,
        device: torch.device,
        dtype: torch.dtype,
        fp8_inputs: bool,
    ) -> None:
        """`max_rows`, `max_tokens`: of a step. `arena_bytes`: of adapters on the device. `fp8_inputs`:
        whether linears take FP8, so that norms and SiLU leave it beside their result. Raises `ArenaFull`."""
        self._max_rows = max_rows
        self._shape = shape
        self._device = device
        self._fp8_inputs = fp8_inputs
        self._attention = new_plan(shape, max_rows, max_tokens, device)
        # Zeroed once: no kernel writes rows of padding, and what lies there must at least be numbers.
        self._attended = torch.zeros(max_tokens, shape.num_heads, shape.head_dim, dtype=dtype, device=device)
        self._planes = paged_attention.new_planes(shape, max_rows, device)
        self.arena = AdapterArena(layout, num_slots, arena_bytes, device)
        self.slots = ArenaSlots(self.arena, device)
        self._planner = SgmvPlanner(max_tokens, num_slots, device)
        self._bridge = sgmv.new_bridge(layout, max_tokens, device)
        self._side = SideStream(device)
        self._coded: tuple[Tensor, Codes] | None = None
        self._programs = _programs(device)

    def new_cache(
        self,
        shape: AttentionShape,
        num_blocks: int,
        dtype: torch.dtype,
        key_scale: float = 1.0,
        value_scale: float = 1.0,
    ) -> LayerCache:
        """K and V `[num_blocks, num_kv_heads, block_size, head_dim]`."""
        size = num_blocks, shape.num_kv_heads, shape.block_size, shape.head_dim
        keys, values = (torch.zeros(size, dtype=dtype, device=self._device) for _ in range(2))
        return LayerCache(keys, values, key_scale, value_scale)

    def new_slots(self, num_slots: int, num_layers: int, sites: Mapping[str, tuple[int, int]]) -> ArenaSlots:
        """The one set there is, of the sizes that these kernels were made for."""
        layout = self.arena.layout
        assert (num_slots, num_layers, dict(sites)) == (
            self.arena.num_slots,
            layout.num_layers,
            dict(layout.sites),
        )
        return self.slots

    def plan(self, shape: AttentionShape, rows: Sequence[Row], slots: AdapterSlots) -> GpuStep:
        """A step in tensors of its own, for a few steps at start or in tests: it waits for the device."""

        def on_device(values: Sequence[int]) -> Tensor:
            return torch.tensor(values, dtype=torch.int32, device=self._device)

        counts = [len(row.tokens) for row in rows]
        assert sum(counts) <= self._attended.shape[0], "a step holds no more tokens than there is room for"
        tables = torch.zeros(self._max_rows, max(len(row.block_table) for row in rows), dtype=torch.int32)
        for table, row in zip(tables, rows, strict=False):
            table[: len(row.block_table)] = torch.tensor(row.block_table, dtype=torch.int32)
        firsts = [sum(counts[:index]) for index in range(len(rows))]
        empty = [0] * (self._max_rows - len(rows))
        attention = AttentionRows(
            tables.to(self._device),
            on_device(firsts + empty),
            on_device(counts + empty),
            on_device([row.start for row in rows] + empty),
            on_device([len(rows)]),
        )
        self.slots.await_copies({row.slot for row in rows})
        return self.begin(
            on_device([token for row in rows for token in row.tokens]),
            attention,
            on_device([row.slot for row in rows for _ in row.tokens]),
            on_device([sum(counts)]),
            groups=self.slots.groups({row.slot for row in rows}),
            prefill=True,
        )

    def begin(
        self,
        tokens: Tensor,
        rows: AttentionRows,
        token_slot: Tensor,
        num_tokens: Tensor,
        *,
        groups: frozenset[str],
        prefill: bool,
    ) -> GpuStep:
        """Build a step's plans on the device, from `tokens` int32 [num_rows], `token_slot` int32 [num_rows]
        and `num_tokens` int32 [1], beyond which rows are padding. `groups`: those in which a row's adapter
        may have something. Asks the host nothing."""
        build_plan(rows, self._attention, self._shape)
        lora = self._planner.build(token_slot, num_tokens) if groups else None
        return GpuStep(tokens, rows, lora, groups, prefill)

    def add_norm(self, residual: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty(residual.shape, dtype=weight.dtype, device=residual.device)
        codes = self._new_codes(out)
        rowwise_triton.add_norm(residual, delta, weight, eps, out, codes)
        return out

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device)
        codes = self._new_codes(out)
        rowwise_triton.silu_mul(gate_up, out, codes)
        return out

    def quantize(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`engine.model.linear.Quantize`: codes that were left beside `x`, or new ones."""
        if self._coded is not None and self._coded[0] is x:
            codes = self._coded[1]
        else:
            codes = _empty_codes(x)
            rowwise_triton.quantize_rows(x, codes)
        return codes.codes, codes.scale

    def rotate_and_store(
        self,
        shape: AttentionShape,
        meta: GpuStep,
        qkv: Tensor,
        norms: HeadNorms | None,
        cos_sin: Tensor,
        cache: LayerCache,
    ) -> Tensor:
        q = torch.empty(qkv.shape[0], shape.num_heads, shape.head_dim, dtype=qkv.dtype, device=qkv.device)
        kv_write.rotate_and_store(shape, self._attention, qkv, norms, cos_sin, cache, q)
        return q

    def attend(self, shape: AttentionShape, meta: GpuStep, q: Tensor, cache: LayerCache) -> Tensor:
        out = self._attended[: q.shape[0]]
        paged_attention.attend(
            shape, meta.rows, self._attention, self._planes, q, cache, out,
            programs=self._programs, prefill=meta.prefill,
        )  # fmt: skip
        return out.view(q.shape[0], -1)

    def adapted(self, meta: GpuStep, layer: int, group: str, product: Product, x: Tensor) -> Tensor:
        """The shrink reads `x` on a stream beside the base product; the expand adds to its result."""
        if meta.lora is None or group not in meta.groups:
            return product(x)
        with self._side.fork():
            sgmv.shrink(x, meta.lora, self.arena, layer, group, self._bridge)
        y = product(x)
        self._side.join()
        sgmv.expand(self._bridge, meta.lora, self.arena, layer, group, y)
        return y

    def _new_codes(self, out: Tensor) -> Codes | None:
        if not self._fp8_inputs:
            return None
        self._coded = out, _empty_codes(out)
        return self._coded[1]


def _empty_codes(like: Tensor) -> Codes:
    codes = torch.empty(like.shape, dtype=torch.float8_e4m3fn, device=like.device)
    return Codes(codes, torch.empty(like.shape[0], 1, dtype=torch.float32, device=like.device))


def _programs(device: torch.device) -> int:
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return PROGRAMS_A_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count
