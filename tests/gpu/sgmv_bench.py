"""The products of a whole step: the base's alone by `torch._scaled_mm`, and LoRA's by our kernels against a
loop of torch's matrix products over the adapters, which is as good as one can do without a kernel.

Both are captured as one graph, so that neither pays for launches from the host, and both go through all
layers, so that no cache holds the factors from one run to the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from engine.kernels import sgmv
from engine.kernels.adapter_arena import AdapterArena, pack_for_arena
from engine.kernels.lora import GROUPS, SITES, KernelAdapter
from engine.kernels.sgmv_plan import SgmvPlanner
from engine.model.linear import Linear, new_linear
from tests.gpu.random_model import SPREAD
from tests.gpu.scale import Scale
from tests.gpu.sections import Found, Table
from tests.gpu.timing import Memory, captured, median_ms

NEAR = 0.02  # of the largest number: sums in bfloat16 and another order


def measure(scale: Scale) -> Found:
    with torch.inference_mode():
        return _measure(scale)


def _measure(scale: Scale) -> Found:
    found, memory = Found(), Memory(scale)
    found.notes.append(memory.told())
    alone = _measure_base(scale, memory, found)
    _measure_lora(scale, memory, found, alone)
    return found


def _measure_base(scale: Scale, memory: Memory, found: Found) -> dict[int, float]:
    """ms by rows."""
    base, told, alone = _Base(scale), [], {}
    for count in (*scale.batches, *scale.prompts):
        alone[count] = median_ms(captured(base.step(count), scale), scale)
        floor = memory.floor_ms(base.num_bytes(count))
        told.append((str(count), f"{alone[count]:.3f}", f"{floor:.3f}", f"{alone[count] / floor:.2f}"))
    head = ("rows", "ms", "floor, ms", "times the floor")
    found.tables.append(Table("The base's products of a step, FP8 by `torch._scaled_mm`", head, told))
    return alone


def _measure_lora(scale: Scale, memory: Memory, found: Found, alone: dict[int, float]) -> None:
    lora, told = _Lora(scale), []
    for count, base_ms in alone.items():
        for distinct in (number for number in scale.distinct if number <= count):
            ours, loop, floor = lora.compare(count, distinct, memory, found)
            told.append((
                str(count), str(distinct), f"{ours:.3f}", f"{loop:.3f}", f"{loop / ours:.1f}", f"{floor:.3f}",
                f"{ours / floor:.1f}", f"{ours / base_ms:.2f}",
            ))  # fmt: skip
    head = (
        "rows", "adapters", "SGMV, ms", "loop of products, ms", "loop / SGMV", "floor, ms", "times the floor",
        "of the base's products",
    )  # fmt: skip
    title = f"LoRA of rank {scale.rank} on all sites of a step, beside nothing"
    found.tables.append(Table(title, head, told))


class _Base:
    """All layers' fused products, over codes that are there already."""

    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        self._sizes = _group_sizes(scale)
        self._linears = [
            (inputs, self._linear(inputs, outputs))
            for _ in range(scale.config.num_layers)
            for inputs, outputs in self._sizes.values()
        ]
        self._codes: dict[int, tuple[Tensor, Tensor]] = {}  # by inputs

    def step(self, rows: int) -> Callable[[], Tensor]:
        device = self._scale.device
        xs = {inputs: _drawn(rows, inputs, device) for inputs, _ in self._linears}
        codes = {
            inputs: (x.to(torch.float8_e4m3fn), torch.ones(rows, 1, device=device))
            for inputs, x in xs.items()
        }

        def run() -> Tensor:
            self._codes = codes
            for inputs, linear in self._linears:
                y = linear(xs[inputs])
            return y

        return run

    def num_bytes(self, rows: int) -> int:
        layers = self._scale.config.num_layers
        return layers * sum(i * o + rows * (i + 2 * o) for i, o in self._sizes.values())

    def _linear(self, inputs: int, outputs: int) -> Linear:
        codes = (_drawn(outputs, inputs, self._scale.device) * SPREAD).to(torch.float8_e4m3fn)
        scale = torch.full((outputs, 1), 1 / (SPREAD * inputs**0.5), device=self._scale.device)
        return new_linear(codes, None, scale, quantize=lambda x: self._codes[x.shape[1]])


class _Lora:
    def __init__(self, scale: Scale) -> None:
        self._scale = scale
        adapter, layout = scale.adapter(), scale.layout
        slots, most = max(scale.distinct), max((*scale.batches, *scale.prompts))
        budget = slots * (layout.device_bytes(adapter) + layout.page_bytes)
        self._arena = AdapterArena(layout, slots, budget, scale.device)
        run = pack_for_arena(adapter, layout)
        for slot in range(slots):
            self._arena.install_run(slot, run)
        self._views = _views(self._arena, adapter)
        self._planner = SgmvPlanner(most, slots, scale.device)
        self._bridge = sgmv.new_bridge(layout, most, scale.device)
        self._factor_bytes = adapter.num_bytes

    def compare(self, rows: int, distinct: int, memory: Memory, found: Found) -> tuple[float, float, float]:
        """Ours, the loop, and the floor, in ms."""
        step = _Step(self._scale, rows, distinct)
        ours, loop = (
            captured(work, self._scale)
            for work in (lambda: self._ours(step), lambda: self._loop(step, distinct))
        )
        results = []
        for work in (ours, loop):
            step.clear()
            work()
            results.append({group: y.float() for group, y in step.y.items()})
        for group, wanted in results[1].items():
            off = (results[0][group] - wanted).abs().max() / wanted.abs().max()
            if not off <= NEAR or not wanted.any():
                found.failures.append(f"{rows} rows, {distinct} adapters, {group}: off by {float(off):.4f}")
        layers = self._scale.config.num_layers
        moved = distinct * self._factor_bytes
        moved += layers * sum(2 * rows * (i + 2 * o) for i, o in _group_sizes(self._scale).values())
        return median_ms(ours, self._scale), median_ms(loop, self._scale), memory.floor_ms(moved)

    def _ours(self, step: _Step) -> Tensor:
        plan = self._planner.build(step.token_slot, step.num_tokens)
        for layer in range(self._scale.config.num_layers):
            for group in GROUPS:
                sgmv.shrink(step.x[group], plan, self._arena, layer, group, self._bridge)
                sgmv.expand(self._bridge, plan, self._arena, layer, group, step.y[group])
        return step.y["down"]

    def _loop(self, step: _Step, distinct: int) -> Tensor:
        """Rows of an adapter lie together, which helps the loop."""
        for layer in range(self._scale.config.num_layers):
            for group, members in GROUPS.items():
                for slot in range(distinct):
                    part, column = step.parts[slot], 0
                    for site in members:
                        a, b = self._views[layer, site, slot]
                        y = step.y[group][part, column : column + b.shape[1]]
                        y.addmm_(step.x[group][part] @ a.T, b)
                        column += b.shape[1]
        return step.y["down"]


class _Step:
    """Rows of each adapter beside each other, in equal parts."""

    def __init__(self, scale: Scale, rows: int, distinct: int) -> None:
        device, sizes = scale.device, _group_sizes(scale)
        slots = torch.arange(rows) * distinct // rows
        bounds = torch.searchsorted(slots, torch.arange(distinct + 1)).tolist()
        self.token_slot = slots.to(device, torch.int32)
        self.num_tokens = torch.tensor([rows], dtype=torch.int32, device=device)
        self.parts = [slice(start, end) for start, end in itertools.pairwise(bounds)]
        self.x = {group: _drawn(rows, inputs, device) for group, (inputs, _) in sizes.items()}
        self.y = {
            group: torch.zeros(rows, outputs, dtype=torch.bfloat16, device=device)
            for group, (_, outputs) in sizes.items()
        }

    def clear(self) -> None:
        for y in self.y.values():
            y.zero_()


def _group_sizes(scale: Scale) -> dict[str, tuple[int, int]]:
    """(in, out) of the fused products of a layer."""
    sites = scale.config.sites
    return {
        group: (sites[members[0]][0], sum(sites[site][1] for site in members))
        for group, members in GROUPS.items()
    }


def _drawn(rows: int, width: int, device: torch.device) -> Tensor:
    draw = torch.Generator(device).manual_seed(rows * 31 + width)
    return torch.randn(rows, width, generator=draw, dtype=torch.bfloat16, device=device)


def _views(arena: AdapterArena, adapter: KernelAdapter) -> dict[tuple[int, str, int], tuple[Tensor, Tensor]]:
    """A and transposed B of each (layer, site, slot), where the arena holds them."""
    views = {}
    a_at, b_at = arena.a_at.tolist(), arena.b_at.tolist()
    for (layer, site), factors in adapter.modules.items():
        for slot in range(arena.num_slots):
            a, b = (
                arena.data[at[layer][SITES.index(site)][slot] :][: factor.numel()].view(factor.shape)
                for at, factor in ((a_at, factors.a), (b_at, factors.b))
            )
            views[layer, site, slot] = a, b
    return views
