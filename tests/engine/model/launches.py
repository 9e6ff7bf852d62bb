"""Every kernel that a GPU runner launches for the shape of Llama 3.1 8B, compiled for Hopper as triton's own
launcher would have it compiled: same types, same constants, same alignments. No GPU is needed.

A program of its own (triton must not interpret): prints a line of JSON for each kernel, and says which were
met while graphs were recorded, and which only in steps after.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from engine.core.plan import BASE_SLOT, Row, StepPlan
from engine.kernels.adapter_arena import HostRun
from engine.kernels.lora import GROUPS
from engine.model import llama
from engine.model.config import ModelConfig
from engine.model.gpu_runner import GpuOptions, GpuRunner
from engine.model.graphs import EagerGraphs, Recorded
from engine.model.kv_scales import KvScales
from engine.model.linear import Linear, Quantize
from engine.model.weights import expected_shapes
from tests.engine.kernels.hopper import SM_90, WARP, resources
from tests.gpu.random_model import llama_8b

CONFIG = replace(llama_8b(num_layers=1), vocab_size=64)
OPTIONS = GpuOptions(
    max_model_len=4096,
    num_blocks=64,
    num_slots=32,
    max_rows=128,
    max_tokens=600,
    max_graph_tokens=256,
    arena_bytes=1 << 24,
)
FEW = replace(  # only the kernels that see the cache differ
    OPTIONS,
    max_rows=16,
    max_tokens=16,
    max_graph_tokens=8,
    kv_fp8=True,
    kv_scales=KvScales((0.1,), (0.1,)),
)


class Launches:
    """In place of launches: what was compiled for them, and when it was first met."""

    def __init__(self) -> None:
        self.stage = "recorded"
        self.met: dict[int, tuple[str, str, Any]] = {}

    def __enter__(self) -> Launches:
        run = JITFunction.run

        def compile_alone(function: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            compiled = run(function, *args, grid=grid, warmup=True, **options)
            self.met.setdefault(id(compiled), (function.fn.__name__, self.stage, compiled))
            return compiled

        self._patch = patch.object(JITFunction, "run", compile_alone)
        self._patch.start()
        triton.runtime.driver.set_active(Hopper())
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def told(self) -> Iterator[dict[str, object]]:
        for name, stage, compiled in self.met.values():
            registers, stack = resources(compiled.asm["cubin"])
            yield {
                "name": name,
                "stage": stage,
                "registers": registers,
                "stack_bytes": stack,
                "shared_bytes": compiled.metadata.shared,
                "threads": compiled.metadata.num_warps * WARP,
            }


class Hopper:
    """What triton's launcher asks of a driver."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", SM_90, WARP)


class RunOnce(EagerGraphs):
    """Runs what is recorded and what is warmed, as on a GPU."""

    def record(self, function: Callable[[], Tensor]) -> Recorded:
        function()
        return super().record(function)

    def warm(self, function: Callable[[], Tensor]) -> None:
        function()


def quick_linear(weights: Any, modules: list[str], dtype: torch.dtype, quantize: Quantize) -> Linear:
    """Quantizes as a GPU's does, and multiplies nothing."""
    outputs = sum(weights[f"{module}.weight"].shape[0] for module in modules)

    def call(x: Tensor) -> Tensor:
        if modules != ["lm_head"]:
            quantize(x)
        return torch.zeros(x.shape[0], outputs, dtype=dtype)

    return call


def empty_weights(config: ModelConfig) -> dict[str, Tensor]:
    weights = {}
    for name, shape in expected_shapes(config).items():
        is_coded = len(shape) == 2 and ".layers." in name
        weights[name] = torch.empty(shape, dtype=torch.float8_e4m3fn if is_coded else torch.bfloat16)
        if is_coded:
            weights[f"{name.removesuffix('.weight')}.weight_scale"] = torch.ones(shape[0], 1)
    return weights


def empty_run() -> HostRun:
    """An adapter that claims to have something in every group."""
    shape = CONFIG.num_layers, 7
    integers = torch.zeros(shape, dtype=torch.int64)
    touched = frozenset((0, group) for group in GROUPS)
    return HostRun((), integers, integers, integers.int(), torch.zeros(shape), touched)


def serve(options: GpuOptions, launches: Launches) -> None:
    """Steps of every size class, below and beyond the graphs, with adapters and without."""
    launches.stage = "recorded"
    runner = GpuRunner(CONFIG, empty_weights(CONFIG), options, torch.device("cpu"), graphs=RunOnce())
    launches.stage = "later"
    runner.install(0, empty_run())
    sizes = (1, 2, 7, 16, 100, 256, 257, 512, 600)
    for count in (size for size in sizes if size <= options.max_tokens):
        for slot in (BASE_SLOT, 0):
            runner.submit(StepPlan(1, [Row(0, [1] * count, 0, list(range(38)), slot)], 0)).wait()
    rows = [Row(number, [1], 5, [number], number % 2 - 1) for number in range(11)]
    runner.submit(StepPlan(2, rows, 0)).wait()


def main() -> None:
    torch.set_num_threads(1)
    with patch.object(llama, "fused_linear", quick_linear), Launches() as launches:
        for options in (OPTIONS, FEW):
            serve(options, launches)
    for kernel in launches.told():
        print(json.dumps(kernel))


if __name__ == "__main__":
    main()
