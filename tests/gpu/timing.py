"""Time on the device: by CUDA events, or in a dry run by the clock, which then tells nothing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from engine.model.graphs import CudaGraphs
from tests.gpu.scale import Scale

WARM_UPS = 3


class Stamp:
    """A moment on the current stream, which the device comes to after all that was launched before."""

    def __init__(self, device: torch.device) -> None:
        self._event: torch.cuda.Event | None = None
        self._host_ms = time.perf_counter() * 1e3
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch gives it no types
            self._event.record()

    def ms_until(self, later: Stamp) -> float:
        """Waits for `later`."""
        if self._event is None or later._event is None:
            return later._host_ms - self._host_ms
        later._event.synchronize()
        return float(self._event.elapsed_time(later._event))


def median_ms(work: Callable[[], object], scale: Scale, runs: int = 20) -> float:
    """Of `runs` runs, one queued behind the other, so that the host's time to launch one is not seen where
    the device takes longer."""
    runs = 1 if scale.is_dry else runs
    for _ in range(WARM_UPS if not scale.is_dry else 0):
        work()
    stamps = [Stamp(scale.device)]
    for _ in range(runs):
        work()
        stamps.append(Stamp(scale.device))
    return median(one.ms_until(other) for one, other in itertools.pairwise(stamps))


def captured(work: Callable[[], Tensor], scale: Scale) -> Callable[[], object]:
    """As one CUDA graph, so that launches cost next to nothing; in a dry run the function itself."""
    if scale.is_dry:
        return work
    recorded = CudaGraphs(scale.device).record(work)

    def replay() -> tuple[Tensor, object]:
        return recorded.replay(), work  # which holds what the graph reads

    return replay


def settle(scale: Scale) -> None:
    """Wait for the device."""
    if not scale.is_dry:
        torch.cuda.synchronize(scale.device)


class Memory:
    """How fast the device's memory is: `measured` by a copy in the same run, and as its clock says."""

    def __init__(self, scale: Scale) -> None:
        """Bytes a millisecond."""
        one, other = (
            torch.zeros(scale.copied_bytes, dtype=torch.uint8, device=scale.device) for _ in range(2)
        )
        self.measured = 2 * scale.copied_bytes / median_ms(lambda: one.copy_(other), scale)
        self.nominal = None if scale.is_dry else _nominal(scale.device)

    def floor_ms(self, num_bytes: int) -> float:
        return num_bytes / self.measured

    def told(self) -> str:
        nominal = "unknown" if self.nominal is None else f"{self.nominal / 1e6:,.0f}"
        return f"Memory: {self.measured / 1e6:,.0f} GB/s measured by a copy, {nominal} GB/s nominal."


def _nominal(device: torch.device) -> float | None:
    """Where torch tells clock (kHz) and bus: two transfers a clock."""
    properties = torch.cuda.get_device_properties(device)
    clock, bits = (getattr(properties, name, 0) for name in ("memory_clock_rate", "memory_bus_width"))
    return 2.0 * clock * bits / 8 or None
