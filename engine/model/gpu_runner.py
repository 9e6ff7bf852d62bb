"""Carries out plans on a GPU: submits a step while the one before still runs (`engine.core.plan.Runner`).

A step is one copy to the device, a replay of the graph that fits it, a replay of the head's graph for its
rows that sample, the sampler, and one copy back; `wait` is where the host waits for the device, once a step.
Steps larger than the largest graph launch the same function kernel by kernel.

On a CPU the same code runs in Triton's interpreter, for tests.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from adapters.wire import MAX_TOP_LOGPROBS
from engine.core.plan import Row, RowResult, SamplePlan, StepPlan
from engine.core.protocol import Sampling
from engine.kernels.adapter_arena import ArenaFull, ArenaLayout, HostRun
from engine.kernels.gpu import GpuKernels, GpuStep
from engine.kernels.lora import KernelAdapter
from engine.kernels.shapes import AttentionShape, LayerCache
from engine.model.config import ModelConfig, ModelRefused
from engine.model.graphs import CudaGraphs, EagerGraphs, Graphs
from engine.model.group import Group
from engine.model.kv_scales import CHUNK_TOKENS, KvScales, measure_scales
from engine.model.llama import LlamaModel
from engine.model.outcome import Outcome, Outcomes
from engine.model.quantization import E4M3
from engine.model.sampler import Sampled, is_plain, sample, sample_greedy
from engine.model.sharding import shard_config, shard_weights
from engine.model.step_graphs import StepGraphs
from engine.model.step_inputs import STEPS_AT_ONCE, Capacity, StepInputs, StepSize

_log = logging.getLogger(__name__)

_GREEDY = Sampling(max_tokens=1, seed=0, temperature=0.0)
_DRAWN = Sampling(max_tokens=1, seed=0)
_DEMANDING = Sampling(
    max_tokens=1,
    seed=0,
    top_p=0.9,
    frequency_penalty=0.1,
    repetition_penalty=1.1,
    logit_bias={0: 1.0},
    logprobs=MAX_TOP_LOGPROBS,
)


@dataclass(frozen=True)
class GpuOptions:
    """Sizes of what a device holds beside the weights. `num_blocks` and `kv_scales` are settled by whoever
    knows the checkpoint."""

    max_model_len: int
    num_blocks: int
    block_size: int = 16
    dtype: torch.dtype = torch.bfloat16
    num_slots: int = 8
    max_rows: int = 64  # sequences of a step
    max_tokens: int = 256  # tokens of a step
    max_graph_tokens: int = 256  # of the largest captured step
    max_rank: int = 256
    arena_bytes: int = 1 << 30  # of adapters
    kv_fp8: bool = False  # the KV cache; else it is in `dtype`
    kv_scales: KvScales | None = None  # None = measured over `kv_text`, tokens of some prose
    kv_text: tuple[int, ...] = ()

    @property
    def capacity(self) -> Capacity:
        return Capacity(self.max_rows, self.max_tokens, -(-self.max_model_len // self.block_size))


class GpuRunner:
    """One model on one device. All calls come from one thread."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        options: GpuOptions,
        device: torch.device,
        base_digest: str = "",
        graphs: Graphs | None = None,
        group: Group | None = None,
    ) -> None:
        """`weights` as `engine.model.weights.expected_shapes` names them, anywhere, with scales of those in
        FP8. Captures all graphs; of a tensor-parallel `group`'s part, `capture` does, once all have met.
        Raises `ModelRefused`."""
        self.config = config
        self.base_digest = base_digest
        self.max_model_len = options.max_model_len
        self.block_size, self.num_blocks = options.block_size, options.num_blocks
        self.num_slots = options.num_slots
        self._device = device
        self._options = options
        part = config
        if group is not None:
            part = shard_config(config, group.shard)
            weights = shard_weights(weights, config, group.shard)
        with torch.inference_mode():
            self._kernels = _kernels(part, weights, options, device)
            self._model: LlamaModel[GpuStep] = LlamaModel(
                part,
                weights,
                self._kernels,
                dtype=options.dtype,
                block_size=options.block_size,
                max_model_len=options.max_model_len,
                group=group,
                device=device,
                quantize=self._kernels.quantize,
            )
            self.caches = self._new_caches(options, self._kv_scales(options))
            self._inputs = StepInputs(options.capacity, device)
        self._recorder = graphs or (CudaGraphs(device) if device.type == "cuda" else EagerGraphs())
        self._graphs: StepGraphs | None = None
        self._outcomes = Outcomes(self._model.logits, most_tails=options.num_blocks)
        self._sampled_at: dict[int, int] = {}
        self._in_flight = 0
        if group is None:
            self.capture()

    def capture(self) -> None:
        """Record the graphs of all steps, and run whatever else a step may need once. All of a group do it
        together."""
        began = time.monotonic()
        with torch.inference_mode():
            self._graphs = StepGraphs(
                self._model,
                self._kernels,
                self.caches,
                self._inputs,
                self._recorder,
                self._options.max_graph_tokens,
            )
            self._recorder.warm(self._sample_all)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        took_s = time.monotonic() - began
        _log.info(
            "%d KV blocks of %d positions on %s; graphs recorded in %.1f s",
            self.num_blocks,
            self.block_size,
            self._device,
            took_s,
        )

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.config.eos_token_ids

    @property
    def max_in_flight(self) -> int:
        return STEPS_AT_ONCE

    @property
    def device_adapter_bytes(self) -> int:
        """The budget of adapters on the device."""
        return self._kernels.arena.num_pages * self._kernels.arena.layout.page_bytes

    def device_bytes(self, run: HostRun) -> int:
        """What an adapter takes of that."""
        return len(run.pages) * self._kernels.arena.layout.page_bytes

    def part_bytes(self, adapter: KernelAdapter) -> int:
        """What an adapter (a process's part of one, where it is one of a group) will take of that."""
        return self._kernels.arena.layout.device_bytes(adapter)

    def pack(self, adapter: KernelAdapter) -> HostRun:
        """What `install` copies fastest, in pinned memory; for a loader thread."""
        return self._kernels.slots.pack(adapter)

    def install(self, slot: int, adapter: object) -> None:
        """`adapter`: what `pack` gave, or a `KernelAdapter`. The copy runs beside steps; the first that uses
        the slot waits for it."""
        assert isinstance(adapter, (HostRun, KernelAdapter))
        with torch.inference_mode():
            self._kernels.slots.install(slot, adapter)

    def clear(self, slot: int) -> None:
        with torch.inference_mode():
            self._kernels.slots.clear(slot)

    def execute(self, plan: StepPlan) -> list[RowResult]:
        return self.submit(plan).wait()

    def submit(self, plan: StepPlan) -> GpuPendingStep:
        assert self._in_flight < STEPS_AT_ONCE, "host memory of an earlier step is still in use"
        assert self._graphs is not None, "captured before it serves"
        with torch.inference_mode():
            size = self._inputs.send(plan.rows, self._sampled_at)
            self._kernels.slots.await_copies(size.slots)
            groups = self._kernels.slots.groups(size.slots)
            residual, finite = self._graphs.forward(size, groups)
            sampled = self._sample(self._graphs, plan.rows, size, residual)
            outcome = self._outcomes.of(plan.rows, residual, finite, sampled)
            self._in_flight += 1
            return GpuPendingStep(outcome, self._to_host(outcome.packed), self._done)

    def _sample(
        self, graphs: StepGraphs, rows: Sequence[Row], size: StepSize, residual: Tensor
    ) -> Sampled | None:
        """Chooses on the device, and leaves the tokens there for the next step."""
        plans = [row.sample for row in rows if row.sample is not None]
        sampling = [row.sequence for row in rows if row.sample is not None]
        self._sampled_at = {sequence: at for at, sequence in enumerate(sampling)}
        if not plans:
            return None
        heads = graphs.heads(residual, size.num_sampled)
        if all(map(is_plain, plans)):
            sampled = sample_greedy(heads.best, heads.finite)
        else:
            sampled = sample(heads.logits, plans)
        self._inputs.last_tokens[: size.num_sampled].copy_(sampled.tokens)
        return sampled

    def _sample_all(self) -> Tensor:
        """As many rows as a step can have, and all that they can ask: the memory for it is there from the
        start, or the replica doesn't start."""
        rows = self._options.max_rows
        kinds = [_DEMANDING] * max(1, rows - 2) + [_DRAWN, _GREEDY]
        plans = [SamplePlan(kind, 0, (0,), (0,), banned=(0,)) for kind in kinds[:rows]]
        return sample(torch.zeros(rows, self.vocab_size, device=self._device), plans).packed

    def _to_host(self, packed: Tensor) -> _HostCopy:
        if self._device.type != "cuda":
            return _HostCopy(packed, None)
        host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
        host.copy_(packed, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch gives it no types
        arrived.record()
        return _HostCopy(host, arrived)

    def _done(self) -> None:
        self._in_flight -= 1

    def _kv_scales(self, options: GpuOptions) -> KvScales | None:
        """Of a cache in FP8, whose KV gets a name of its own; None for any other."""
        if not options.kv_fp8:
            return None
        scales = options.kv_scales or measure_scales(
            self._model,
            self._kernels,
            self._kernels.slots,
            options.kv_text,
            options.dtype,
            options.max_model_len,
            min(CHUNK_TOKENS, options.max_tokens),
        )
        self.base_digest = scales.digest(self.base_digest)
        return scales

    def _new_caches(self, options: GpuOptions, scales: KvScales | None) -> list[LayerCache]:
        dtype = options.dtype if scales is None else E4M3
        by_layer = scales.by_layer if scales is not None else [(1.0, 1.0)] * self.config.num_layers
        return [
            self._kernels.new_cache(self._model.attention, options.num_blocks, dtype, *scale)
            for scale in by_layer
        ]


@dataclass(frozen=True, slots=True)
class _HostCopy:
    tensor: Tensor
    arrived: torch.cuda.Event | None


class GpuPendingStep:
    """`engine.core.plan.PendingStep`."""

    def __init__(self, outcome: Outcome, copy: _HostCopy, done: Callable[[], None]) -> None:
        self._outcome = outcome
        self._copy = copy
        self._done = done

    def wait(self) -> list[RowResult]:
        if self._copy.arrived is not None:
            self._copy.arrived.synchronize()
        self._done()
        return self._outcome.read(self._copy.tensor)


def _kernels(
    config: ModelConfig, weights: Mapping[str, Tensor], options: GpuOptions, device: torch.device
) -> GpuKernels:
    shape = AttentionShape(
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
        options.block_size,
        config.head_dim**-0.5,
        config.norm_eps,
    )
    try:
        return GpuKernels(
            shape,
            max_rows=options.max_rows,
            max_tokens=options.max_tokens,
            layout=ArenaLayout(config.num_layers, config.sites, options.max_rank),
            num_slots=options.num_slots,
            arena_bytes=options.arena_bytes,
            device=device,
            dtype=options.dtype,
            fp8_inputs=any(name.endswith(".weight_scale") for name in weights),
        )
    except ArenaFull as error:
        raise ModelRefused(str(error)) from error
