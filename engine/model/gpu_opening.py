"""From settings to a runner on a GPU."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from adapters.peft_config import MAX_RANK
from engine.config import CoreSettings
from engine.kernels.attention_plan import MOST_GROUP, MOST_HEAD_DIM, MOST_ROWS
from engine.kernels.lora import SITES
from engine.kernels.rowwise_triton import MOST_WIDTH
from engine.kernels.shapes import LANES
from engine.model.config import ModelConfig, ModelRefused, read_config
from engine.model.gpu_runner import GpuOptions, GpuRunner
from engine.model.group import Group
from engine.model.kv_scales import BUILT_IN_TEXT, find_scales, text_tokens
from engine.model.quantization import quantize_weights
from engine.model.sharding import Shard, shard_config
from engine.model.weights import base_digest, load_weights

LEAST_GRAPH_TOKENS = 256
"""Of the largest captured step; one in which all that may run decodes is captured in any case."""
USUAL_RANK = 64
"""Without a budget the arena holds as many adapters of this rank, on all sites, as there are slots."""


def open_gpu_runner(settings: CoreSettings, device: torch.device, group: Group | None = None) -> GpuRunner:
    """Loads the model and captures all graphs, or loads its part in a tensor-parallel `group`. Raises
    `ModelRefused`."""
    if device.type == "cuda":
        torch.cuda.set_device(device)  # Triton and NCCL take the current one
    if settings.dtype != "bfloat16":
        raise ModelRefused(f"dtype {settings.dtype!r} is not served on a GPU; only bfloat16 is")
    config = read_config(settings.model)
    length = settings.max_model_len or config.max_position_embeddings
    config.check_context(length)
    options = _options(settings, config, length)
    weights = load_weights(settings.model, config)
    if settings.quantization == "fp8":
        weights = quantize_weights(config, weights)
    digest = base_digest(config, weights, torch.bfloat16)
    options = _with_kv(settings, config, weights, digest, options)
    try:
        return GpuRunner(config, weights, options, device, digest, group=group)
    except torch.OutOfMemoryError as error:
        raise ModelRefused(
            f"the model, its KV cache and its adapters don't fit on the device (lower --kv-bytes): {error}"
        ) from error


def _options(settings: CoreSettings, whole: ModelConfig, length: int) -> GpuOptions:
    """Of each process of a group, all of which are alike."""
    count = settings.tensor_parallel
    config = whole if count == 1 else shard_config(whole, Shard(0, count))
    _check_sizes(settings, config)
    return GpuOptions(
        max_model_len=length,
        num_blocks=settings.num_blocks or _num_blocks(settings, config),
        block_size=settings.block_size,
        num_slots=settings.slots,
        max_rows=settings.max_rows,
        max_tokens=settings.token_budget,
        max_graph_tokens=max(LEAST_GRAPH_TOKENS, settings.max_rows),
        max_rank=MAX_RANK,
        arena_bytes=settings.device_adapter_bytes or _usual_arena(settings.slots, config),
    )


def _check_sizes(settings: CoreSettings, config: ModelConfig) -> None:
    """Of one process, against what the kernels were written for."""
    if settings.block_size % LANES:
        raise ModelRefused(f"block size {settings.block_size} is not a multiple of {LANES}")
    for name, size, most in (
        ("max_running with its newcomers", settings.max_rows, MOST_ROWS),
        ("head_dim", config.head_dim, MOST_HEAD_DIM),
        ("the number of heads that share keys", config.num_heads // config.num_kv_heads, MOST_GROUP),
        ("hidden_size", config.hidden_size, MOST_WIDTH),
        ("intermediate_size", config.intermediate_size, MOST_WIDTH),
    ):
        if size > most:
            raise ModelRefused(f"{name} is {size}: a GPU's kernels serve at most {most}")


def _with_kv(
    settings: CoreSettings, config: ModelConfig, weights: dict[str, Tensor], digest: str, options: GpuOptions
) -> GpuOptions:
    """Of a cache in FP8: its scales, or the text to measure them with."""
    if settings.kv_cache_dtype == "auto":
        if settings.kv_scales is not None:
            raise ModelRefused("KV scales are for a KV cache in FP8")
        return options
    scales = find_scales(weights, settings.kv_scales, digest, config.num_layers)
    if scales is not None:
        return replace(options, kv_fp8=True, kv_scales=scales)
    if settings.tensor_parallel > 1:
        raise ModelRefused("parts of a model can't measure KV scales; give --kv-scales")
    return replace(
        options, kv_fp8=True, kv_text=tuple(text_tokens(settings.model, BUILT_IN_TEXT.read_text()))
    )


def _num_blocks(settings: CoreSettings, config: ModelConfig) -> int:
    cell = 2 * config.num_layers * config.num_kv_heads * config.head_dim
    block_bytes = cell * settings.block_size * (2 if settings.kv_cache_dtype == "auto" else 1)
    budget = settings.kv_bytes // settings.tensor_parallel
    if budget < block_bytes:
        raise ModelRefused(f"the KV budget of {budget} bytes holds no block of {block_bytes}")
    return budget // block_bytes


def _usual_arena(num_slots: int, config: ModelConfig) -> int:
    sizes = [sum(config.sites[site]) for site in SITES]
    page = 2 * MAX_RANK * max(max(config.sites[site]) for site in SITES)
    adapter = 2 * USUAL_RANK * config.num_layers * sum(sizes)
    return num_slots * (-(-adapter // page) + 1) * page
