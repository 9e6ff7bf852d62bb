"""From settings to a runner that is ready: over the whole model, or over a tensor-parallel group's parts."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from engine.config import CoreSettings
from engine.core.plan import Runner
from engine.kernels.lora import HostAdapter, prepare
from engine.model.adapter_source import Prepared
from engine.model.config import ModelRefused
from engine.model.device import chosen_device
from engine.model.group import Group
from engine.model.parallel import ParallelRunner, RankLost, Ranks, prepare_shared
from engine.model.runner import ModelRunner, RunnerOptions
from engine.model.sharding import Shard

if TYPE_CHECKING:
    from engine.model.gpu_runner import GpuRunner


@dataclass(frozen=True)
class Opened:
    """`runner` carries out plans; `model` knows the facts of the model (of rank 0's part); `prepare` makes of
    an adapter what `runner.install` takes."""

    runner: Runner
    model: ModelRunner | GpuRunner
    prepare: Callable[[HostAdapter], Prepared]
    device_adapter_bytes: int | None = None
    """What adapters may take of a device; None where a slot only points to host memory."""
    device_bytes: Callable[[Any], int] | None = None
    """What one that `prepare` made takes of it."""


def open_runner(settings: CoreSettings, closing: contextlib.ExitStack) -> Opened:
    """What it starts ends with `closing`. Raises `ModelRefused`, `RankLost`."""
    if settings.tensor_parallel == 1:
        model = _open_model(settings, chosen_device(settings.device), None)
        _check_capacity(model)
        return Opened(model, model, model.prepare) if isinstance(model, ModelRunner) else _on_gpu(model)
    folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="motet-ranks-"))
    meeting_point = Path(folder) / "meeting-point"
    ranks = Ranks([_command(settings, rank, meeting_point) for rank in range(1, settings.tensor_parallel)])
    closing.callback(ranks.close)
    group = open_group(settings, 0, meeting_point)
    model = open_part(settings, group)
    _check_capacity(model)
    ranks.wait_ready()
    try:
        group.connect()
    except RuntimeError as error:
        raise RankLost(f"the ranks did not meet: {error}") from error
    closing.callback(group.close)
    begin(model)
    whole = Opened(ParallelRunner(model, group, ranks), model, partial(prepare_shared, shard=group.shard))
    if isinstance(model, ModelRunner):
        return whole
    part_bytes = model.part_bytes
    return replace(
        whole,
        device_adapter_bytes=model.device_adapter_bytes,
        device_bytes=lambda adapter: part_bytes(adapter.part),
    )


def open_group(settings: CoreSettings, rank: int, meeting_point: Path) -> Group:
    count = settings.tensor_parallel
    return Group(Shard(rank, count), meeting_point, device=chosen_device(settings.device, rank, count))


def open_part(settings: CoreSettings, group: Group) -> ModelRunner | GpuRunner:
    """The part of one rank. `begin` it once all ranks have met."""
    return _open_model(settings, group.device, group)


def begin(part: ModelRunner | GpuRunner) -> None:
    """What the ranks do together before they serve."""
    if not isinstance(part, ModelRunner):
        part.capture()


def _open_model(settings: CoreSettings, device: torch.device, group: Group | None) -> ModelRunner | GpuRunner:
    if device.type == "cpu":
        return ModelRunner(settings.model, _options(settings), group=group)
    from engine.model.gpu_opening import open_gpu_runner  # noqa: PLC0415 - Triton: a CPU may lack it

    return open_gpu_runner(settings, device, group)


def _on_gpu(model: GpuRunner) -> Opened:
    return Opened(
        model, model, lambda host: model.pack(prepare(host)), model.device_adapter_bytes, model.device_bytes
    )


def _command(settings: CoreSettings, rank: int, meeting_point: Path) -> list[str]:
    settings_json = settings.model_dump_json()
    module = [sys.executable, "-m", "engine.rank_process"]
    return [*module, settings_json, str(rank), str(os.getpid()), str(meeting_point)]


def _options(settings: CoreSettings) -> RunnerOptions:
    return RunnerOptions(
        dtype=settings.dtype,
        max_model_len=settings.max_model_len,
        num_blocks=settings.num_blocks,
        kv_bytes=settings.kv_bytes // settings.tensor_parallel,
        block_size=settings.block_size,
        num_slots=settings.slots,
        num_threads=_threads(settings),
        quantization=settings.quantization,
        kv_cache_dtype=settings.kv_cache_dtype,
        kv_scales=settings.kv_scales,
    )


def _threads(settings: CoreSettings) -> int:
    """Of each process."""
    return settings.threads or max(1, (os.cpu_count() or 1) // settings.tensor_parallel)


def _check_capacity(runner: ModelRunner | GpuRunner) -> None:
    """Raises `ModelRefused` where the KV cache can't hold one request of the length that is promised."""
    capacity = runner.num_blocks * runner.block_size
    if capacity < runner.max_model_len - 1:  # the KV of the very last token is never computed
        raise ModelRefused(
            f"the KV cache holds {capacity} tokens, less than the context of {runner.max_model_len}: "
            "raise --kv-bytes (or --num-blocks), or lower --max-model-len"
        )
