"""Sequences of kernels, recorded once and run again: CUDA graphs, or on a CPU the same function called again.

What runs reads and writes tensors that stay where they are; only what is in them changes. So a recorded
function must not look at their contents, nor at anything else that differs from one step to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from engine.kernels.gpu_slots import new_stream

WARM_UPS = 2
"""Runs before a capture: the first compiles Triton kernels and sets up libraries, which a capture may not."""


class Recorded(Protocol):
    def replay(self) -> Tensor:
        """Run it on the current stream. The result lasts until the next replay of a recorded function."""
        ...


class Graphs(Protocol):
    def record(self, function: Callable[[], Tensor]) -> Recorded:
        """Called while nothing else runs. `function` may run while it is recorded, more than once."""
        ...

    def warm(self, function: Callable[[], Tensor]) -> None:
        """Run what will be called but not recorded, where that compiles its kernels: no step should wait for
        a compiler."""
        ...


class EagerGraphs:
    """Without a GPU: a replay calls the function, and nothing runs before."""

    def record(self, function: Callable[[], Tensor]) -> Recorded:
        return _Eager(function)

    def warm(self, function: Callable[[], Tensor]) -> None:
        pass


class _Eager:
    def __init__(self, function: Callable[[], Tensor]) -> None:
        self._function = function

    def replay(self) -> Tensor:
        return self._function()


class CudaGraphs:
    """All graphs share one pool of memory: they run one after the other, and whoever needs a result after the
    next replay copies it."""

    def __init__(self, device: torch.device) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = new_stream(device)

    def record(self, function: Callable[[], Tensor]) -> Recorded:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                function()
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads (NCCL's watchdog) may ask CUDA things meanwhile: only this one's calls are recorded.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            result = function()
        return _Captured(graph, result)

    def warm(self, function: Callable[[], Tensor]) -> None:
        function()


class _Captured:
    def __init__(self, graph: torch.cuda.CUDAGraph, result: Tensor) -> None:
        self._graph = graph
        self._result = result

    def replay(self) -> Tensor:
        self._graph.replay()
        return self._result
