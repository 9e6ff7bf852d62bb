"""Adapters of random factors for an odd little base: no size is a multiple of a tile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.adapter_arena import AdapterArena, ArenaLayout
from engine.kernels.lora import SITES, KernelAdapter, prepare
from tests.engine.kernels.interpreter import DEVICE

LAYERS = 2
SHAPES = {
    "q_proj": (40, 136),
    "k_proj": (40, 24),
    "v_proj": (40, 20),
    "o_proj": (48, 40),
    "gate_proj": (40, 72),
    "up_proj": (40, 72),
    "down_proj": (1100, 40),  # two planes of partial sums at decode, the second cut short
}
LAYOUT = ArenaLayout(LAYERS, SHAPES, max_rank=256)


@dataclass(frozen=True)
class Loaded:
    modules: dict[tuple[int, str], tuple[Tensor, Tensor, float]]


def drawn(seed: int, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def adapter(
    seed: int,
    rank: int,
    sites: Iterable[str] = SITES,
    layers: Iterable[int] = range(LAYERS),
    dtype: torch.dtype = torch.bfloat16,
    shapes: Mapping[str, tuple[int, int]] = SHAPES,
) -> KernelAdapter:
    """In host memory. A scale of its own for each module, as `alpha_pattern` gives."""
    modules = {}
    for layer in layers:
        for site in sites:
            inputs, outputs = shapes[site]
            own = seed * 1000 + layer * 100 + SITES.index(site)
            a, b = drawn(own, rank, inputs, dtype=dtype), drawn(own + 50, outputs, rank, dtype=dtype)
            modules[layer, site] = (a, b, 0.25 * (1 + own % 7))
    return prepare(Loaded(modules))


def stale_arena(num_slots: int, num_pages: int = 16, layout: ArenaLayout = LAYOUT) -> AdapterArena:
    """Holds nothing, and NaN wherever nothing will be written."""
    arena = AdapterArena(layout, num_slots, num_pages * layout.page_bytes, DEVICE)
    arena.data.fill_(torch.nan)
    return arena
