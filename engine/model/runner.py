"""Carries out plans on CPU: holds the model, the KV cache and the adapter slots
(`engine.core.plan.Runner`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.core.plan import FinishedStep, Row, RowResult, StepPlan
from engine.kernels.cpu import open_kernels
from engine.kernels.host import HostKernels, HostStep
from engine.kernels.lora import HostAdapter, KernelAdapter, prepare
from engine.kernels.native_slots import NativeSlots, PackedAdapter
from engine.kernels.native_step import NativeKernels
from engine.kernels.shapes import MAX_HEAD_DIM, AttentionShape, HostOps, StepKernels
from engine.model.config import ModelConfig, ModelRefused, read_config
from engine.model.group import Group
from engine.model.guard import all_finite
from engine.model.kv_scales import BUILT_IN_TEXT, KvScales, find_scales, measure_scales, text_tokens
from engine.model.llama import LlamaModel, StepModel
from engine.model.native import open_native
from engine.model.outcome import Outcomes
from engine.model.quantization import E4M3, quantize_weights
from engine.model.sampler import sample
from engine.model.sharding import shard_config, shard_weights
from engine.model.weights import base_digest, load_weights

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunnerOptions:
    dtype: str = "bfloat16"  # a key of DTYPES
    max_model_len: int | None = None  # None = what the model was made for
    num_blocks: int | None = None  # None = as many as `kv_bytes` holds
    kv_bytes: int = 1 << 30
    block_size: int = 16  # positions; a multiple of 16
    num_slots: int = 8
    num_threads: int = 2
    rope_dtype: str = "float32"  # what the rotary frequencies are rounded to (a key of DTYPES)
    quantization: str = "none"  # of weights, at load: "none" leaves them as the checkpoint has them, or "fp8"
    kv_cache_dtype: str = "auto"  # "auto" is `dtype`, or "fp8_e4m3"
    kv_scales: Path | None = None  # a file of `kv_scales.write_scales`


class ModelRunner:
    """The numerics of one replica. All calls come from one thread; `execute` is deterministic in bfloat16:
    a row's bits don't depend on the other rows of its plan, on how its prompt was cut, or on where its KV
    lies."""

    def __init__(
        self,
        model_dir: Path,
        options: RunnerOptions,
        ops: HostOps | None = None,
        group: Group | None = None,
    ) -> None:
        """Loads the model, or its part of it in a tensor-parallel `group`. Raises `ModelRefused`."""
        torch.set_num_threads(options.num_threads)
        config = read_config(model_dir)
        self.config = replace(config, rope=replace(config.rope, rounded_to=options.rope_dtype))
        self.max_model_len = options.max_model_len or self.config.max_position_embeddings
        self.block_size = options.block_size
        self.num_slots = options.num_slots
        _check(self.config, options, self.max_model_len)
        self._dtype = dtype = DTYPES[options.dtype]
        weights = load_weights(model_dir, self.config)
        if options.quantization == "fp8":
            weights = quantize_weights(self.config, weights)
        self.base_digest = base_digest(self.config, weights, dtype)
        part = self.config
        if group is not None:
            part = shard_config(self.config, group.shard)
            weights = shard_weights(weights, self.config, group.shard)
        with torch.inference_mode():
            self._model, kernels = self._open(part, weights, options, ops, group)
            shape = self._model.attention
            self._kernels = kernels
            self._slots = kernels.new_slots(options.num_slots, part.num_layers, part.sites)
            scales = self._kv_scales(model_dir, options, weights, group)
            cache_dtype = dtype if scales is None else E4M3
            self.num_blocks = options.num_blocks or _blocks_in(
                options.kv_bytes, shape, part.num_layers, cache_dtype
            )
            self._caches = [
                kernels.new_cache(shape, self.num_blocks, cache_dtype, *scale)
                for scale in (scales.by_layer if scales else [(1.0, 1.0)] * part.num_layers)
            ]
        self._outcomes = Outcomes(self._model.logits, most_tails=self.num_blocks)
        _log.info("model %s is loaded: %d KV blocks of %d", model_dir.name, self.num_blocks, self.block_size)

    def _open(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        options: RunnerOptions,
        ops: HostOps | None,
        group: Group | None,
    ) -> tuple[StepModel[Any], StepKernels[Any]]:
        """Whole steps in C++ where the processor suits it; op by op otherwise, and where `ops` are given."""
        dtype, block_size, length = self._dtype, options.block_size, self.max_model_len
        if ops is None and group is None:
            found = open_native(config, weights, dtype, block_size, length, options.num_threads)
            if found is not None:
                return found
        kernels = HostKernels(ops or open_kernels(options.num_threads))
        model: LlamaModel[HostStep] = LlamaModel(
            config, weights, kernels, dtype=dtype, block_size=block_size, max_model_len=length, group=group
        )
        return model, kernels

    def _kv_scales(
        self, model_dir: Path, options: RunnerOptions, weights: Mapping[str, Tensor], group: Group | None
    ) -> KvScales | None:
        """Of a cache in FP8, whose KV gets a name of its own; None for any other."""
        if options.kv_cache_dtype == "auto":
            return None
        found = find_scales(weights, options.kv_scales, self.base_digest, self.config.num_layers)
        if found is None and group is not None:  # its processes have not met yet
            raise ModelRefused(
                "an FP8 KV cache over several processes needs scales: `motet engine calibrate`"
            )
        scales = found or self.measure_kv_scales(text_tokens(model_dir, BUILT_IN_TEXT.read_text()))
        self.base_digest = scales.digest(self.base_digest)
        return scales

    def measure_kv_scales(self, tokens: Sequence[int]) -> KvScales:
        """What these tokens' keys and values ask for. Needs no room in the cache."""
        with torch.inference_mode():
            return measure_scales(
                self._model, self._kernels, self._slots, tokens, self._dtype, self.max_model_len
            )

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.config.eos_token_ids

    @property
    def max_in_flight(self) -> int:
        return 1

    def submit(self, plan: StepPlan) -> FinishedStep:
        return FinishedStep(self.execute(plan))

    def execute(self, plan: StepPlan) -> list[RowResult]:
        with torch.inference_mode():
            step = self._kernels.plan(self._model.attention, plan.rows, self._slots)
            residual = self._model.forward(step, self._caches)
            return self._results(plan.rows, residual)

    def prepare(self, adapter: HostAdapter) -> KernelAdapter | PackedAdapter:
        """The adapter as `install` takes it at once. For loader threads."""
        prepared = prepare(adapter)
        return self._kernels.packer.pack(prepared) if isinstance(self._kernels, NativeKernels) else prepared

    def install(self, slot: int, adapter: object) -> None:
        """`adapter`: what `prepare` made, here or in `engine.kernels.lora`."""
        if isinstance(self._slots, NativeSlots):
            assert isinstance(adapter, KernelAdapter | PackedAdapter)
            self._slots.install(slot, adapter)
        else:
            assert isinstance(adapter, KernelAdapter)
            self._slots.install(slot, adapter)

    def clear(self, slot: int) -> None:
        self._slots.clear(slot)

    def _results(self, rows: Sequence[Row], residual: Tensor) -> list[RowResult]:
        ends = list(accumulate(len(row.tokens) for row in rows))
        at = [end - 1 for end, row in zip(ends, rows, strict=True) if row.sample is not None]
        plans = [row.sample for row in rows if row.sample is not None]
        sampled = sample(self._model.logits(residual[at]), plans) if plans else None
        outcome = self._outcomes.of(rows, residual, all_finite(residual[: ends[-1]]).int(), sampled)
        return outcome.read(outcome.packed)


def _check(config: ModelConfig, options: RunnerOptions, max_model_len: int) -> None:
    for dtype in (options.dtype, options.rope_dtype):
        if dtype not in DTYPES:
            raise ModelRefused(f"dtype {dtype!r} is not served; known: {', '.join(DTYPES)}")
    if options.block_size < 1 or options.block_size % 16:
        raise ModelRefused(f"block size {options.block_size} is not a multiple of 16")
    if config.head_dim > MAX_HEAD_DIM or config.num_heads // config.num_kv_heads > 64:
        raise ModelRefused(f"head_dim {config.head_dim} or the head group is larger than the kernels take")
    if options.quantization not in {"none", "fp8"} or options.kv_cache_dtype not in {"auto", "fp8_e4m3"}:
        raise ModelRefused(
            f"quantization {options.quantization!r} or KV {options.kv_cache_dtype!r} is not served"
        )
    if options.kv_cache_dtype != "auto" and options.dtype != "bfloat16":
        raise ModelRefused("an FP8 KV cache is served with dtype bfloat16 only")
    if options.kv_cache_dtype == "auto" and options.kv_scales is not None:
        raise ModelRefused("KV scales are for a KV cache in FP8")
    config.check_context(max_model_len)


def _blocks_in(budget: int, shape: AttentionShape, num_layers: int, dtype: torch.dtype) -> int:
    per_block = 2 * num_layers * shape.block_size * shape.num_kv_heads * shape.padded_dim * dtype.itemsize
    if budget < per_block:
        raise ModelRefused(f"the KV budget of {budget} bytes holds no block of {per_block}")
    return budget // per_block
