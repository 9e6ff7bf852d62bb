"""How long a step of decoding takes, as the core's loop would submit it, against the memory's floor: each
weight, each key and value, and each adapter's factors read once."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Sequence
from statistics import median

from engine.core.plan import BASE_SLOT, PENDING_TOKEN, Row, SamplePlan, StepPlan
from engine.core.protocol import Sampling
from engine.kernels.lora import KernelAdapter
from engine.model.gpu_runner import GpuOptions, GpuPendingStep, GpuRunner
from tests.gpu.random_model import random_fp8_weights
from tests.gpu.scale import Scale
from tests.gpu.sections import Found, Table
from tests.gpu.timing import Memory, Stamp, settle

BLOCK = 16
GREEDY = Sampling(max_tokens=1 << 16, seed=0, temperature=0.0)
HEAD = (
    "sequences", "adapters", "step, ms", "on the device, ms", "floor, ms", "times the floor", "of base alone",
    "tokens/s",
)  # fmt: skip


def measure(scale: Scale) -> Found:
    found, began = Found(), time.monotonic()
    memory = Memory(scale)
    weights = random_fp8_weights(scale.config, scale.device)
    weight_bytes = sum(t.nbytes for name, t in weights.items() if name != "model.embed_tokens.weight")
    adapter = scale.adapter()
    runner = GpuRunner(scale.config, weights, _options(scale, adapter), scale.device)
    del weights
    run = runner.pack(adapter)
    for slot in range(max(scale.distinct)):
        runner.install(slot, run)
    settle(scale)
    found.notes += [
        memory.told(),
        f"Model, graphs and adapters were ready after {time.monotonic() - began:.0f} s.",
    ]
    sequences = itertools.count()
    rows = []
    for batch in scale.batches:
        base = 0.0
        for distinct in (0, *(number for number in scale.distinct if number <= batch)):
            decode = _Decode(runner, scale, batch, distinct, next(sequences) * max(scale.batches))
            step, device = decode.run(found)
            base = base or step
            read = weight_bytes + _kv_bytes(scale, batch) + distinct * _factor_bytes(adapter)
            floor = memory.floor_ms(read)
            rows.append((
                str(batch), str(distinct or "none"), f"{step:.2f}", f"{device:.2f}", f"{floor:.2f}",
                f"{step / floor:.2f}", f"{base / step:.2f}", f"{batch / step * 1e3:,.0f}",
            ))  # fmt: skip
    title = f"Steps of decoding over {scale.context} tokens each, FP8 weights, adapters of rank {scale.rank}"
    found.tables.append(Table(title, HEAD, rows))
    return found


def _options(scale: Scale, adapter: KernelAdapter) -> GpuOptions:
    most, length = max(scale.batches), scale.context + scale.warm_ups + scale.steps
    arena = max(scale.distinct) * (scale.layout.device_bytes(adapter) + scale.layout.page_bytes)
    return GpuOptions(
        max_model_len=length,
        num_blocks=most * -(-length // BLOCK),
        block_size=BLOCK,
        num_slots=max(scale.distinct),
        max_rows=most,
        max_tokens=most,
        max_graph_tokens=most,
        max_rank=scale.max_rank,
        arena_bytes=arena,
    )


def _kv_bytes(scale: Scale, batch: int) -> int:
    config = scale.config
    return 2 * 2 * batch * scale.context * config.num_layers * config.num_kv_heads * config.head_dim


def _factor_bytes(adapter: KernelAdapter) -> int:
    return adapter.num_bytes  # in bfloat16, as in the arena


class _Decode:
    """Sequences that decode together, two steps in flight."""

    def __init__(self, runner: GpuRunner, scale: Scale, batch: int, distinct: int, first: int) -> None:
        """`first`: the number of the first sequence, new for every run."""
        self._runner = runner
        self._scale = scale
        blocks = runner.num_blocks // max(scale.batches)
        self._tables = [list(range(i * blocks, (i + 1) * blocks)) for i in range(batch)]
        self._slots = [i % distinct if distinct else BASE_SLOT for i in range(batch)]
        self._first = first

    def run(self, found: Found) -> tuple[float, float]:
        """Medians, in ms: from one step's answers to the next one's, and on the device."""
        flying = deque[tuple[GpuPendingStep, Stamp, Stamp]]()
        told: list[tuple[float, Stamp, Stamp]] = []
        warm_ups = self._scale.warm_ups
        count = warm_ups + self._scale.steps
        for number in range(count + 1):
            if number < count:
                before = Stamp(self._scale.device)
                pending = self._runner.submit(StepPlan(number, self._rows(number), 0))
                flying.append((pending, before, Stamp(self._scale.device)))
            while flying and (number == count or len(flying) == self._runner.max_in_flight):
                pending, before, after = flying.popleft()
                bad = [result.error for result in pending.wait() if result.error]
                told.append((time.perf_counter() * 1e3, before, after))
                if bad:
                    found.failures.append(f"{len(self._slots)} sequences, step {len(told)}: {bad[0]}")
        ends = [when for when, _, _ in told[warm_ups - 1 :]]
        steps = [later - one for one, later in itertools.pairwise(ends)]
        return median(steps), median(before.ms_until(after) for _, before, after in told[warm_ups:])

    def _rows(self, step: int) -> Sequence[Row]:
        tokens = (PENDING_TOKEN,) if step else (1,)
        plan = SamplePlan(GREEDY, 0, (), (), unlisted=step)
        return [
            Row(self._first + i, tokens, self._scale.context + step, table, slot, plan)
            for i, (table, slot) in enumerate(zip(self._tables, self._slots, strict=True))
        ]
