"""The runner over two layers of Llama 3.1 8B in FP8 (in the interpreter, of next to nothing): captured graphs
answer bit for bit as the same kernels launched one by one, with two steps in flight and adapters that come
and go beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine.core.plan import BASE_SLOT, PENDING_TOKEN, Row, RowResult, SamplePlan, StepPlan
from engine.core.protocol import Sampling
from engine.kernels.adapter_arena import HostRun
from engine.model.gpu_runner import GpuOptions, GpuRunner
from engine.model.graphs import EagerGraphs, Graphs
from engine.model.kv_scales import KvScales
from tests.engine.kernels.interpreter import DEVICE
from tests.engine.kernels.random_factors import adapter
from tests.gpu import scale
from tests.gpu.random_model import random_fp8_weights

ON_GPU = DEVICE == "cuda"
CONFIG = replace(scale.full().config, num_layers=2) if ON_GPU else scale.dry().config
LENGTHS = (40, 17, 90) if ON_GPU else (3, 1, 2)
BLOCKS = 8  # of a sequence
OPTIONS = GpuOptions(
    max_model_len=BLOCKS * 16,
    num_blocks=6 * BLOCKS,
    num_slots=3,
    max_rows=6,
    max_tokens=256 if ON_GPU else 8,
    max_graph_tokens=64 if ON_GPU else 4,  # less than the prompts: both roads are taken
    max_rank=64 if ON_GPU else 16,
    arena_bytes=1 << 27 if ON_GPU else 1 << 19,
)
WARM = Sampling(max_tokens=64, seed=5, temperature=1.0, top_p=0.9, logprobs=20)
GREEDY = Sampling(max_tokens=64, seed=0, temperature=0.0, logprobs=20)
PLAIN = Sampling(max_tokens=64, seed=0, temperature=0.0)
RUNS = 20 if ON_GPU else 1

Told = list[tuple[int, int | None, list[tuple[int, float]]]]


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    return random_fp8_weights(CONFIG, torch.device(DEVICE))


def opened(weights: dict[str, Tensor], graphs: Graphs | None = None, *, kv_fp8: bool = False) -> GpuRunner:
    scales = KvScales((0.05, 0.05), (0.05, 0.05)) if kv_fp8 else None
    options = replace(OPTIONS, kv_fp8=kv_fp8, kv_scales=scales)
    return GpuRunner(CONFIG, weights, options, torch.device(DEVICE), graphs=graphs)


def packed(runner: GpuRunner, seed: int, rank: int) -> HostRun:
    run = runner.pack(
        adapter(seed, min(rank, OPTIONS.max_rank), layers=range(CONFIG.num_layers), shapes=CONFIG.sites)
    )
    run.scale.mul_(0.01)  # of factors drawn around 1
    return run


def hold_copies(runner: GpuRunner) -> None:
    """Keeps the copies that follow back for some 10 ms: a step which doesn't wait for them is seen."""
    stream = runner._kernels.slots._stream
    if stream is not None:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]  # torch gives it no types


def row(
    sequence: int, tokens: Sequence[int], start: int, slot: int, sampling: Sampling, made: int = 0
) -> Row:
    table = list(range(sequence * BLOCKS, (sequence + 1) * BLOCKS))
    return Row(sequence, tokens, start, table, slot, SamplePlan(sampling, 0, tokens, (), unlisted=made))


def told(results: Sequence[RowResult]) -> Told:
    assert not [result.error for result in results if result.error]
    return [(r.sequence, r.token, list(r.logprob.top) if r.logprob else []) for r in results]


def prompts() -> list[Row]:
    vocab, kinds = CONFIG.vocab_size, ((0, WARM), (BASE_SLOT, GREEDY), (1, PLAIN))
    return [
        row(i, [(7 * at + i) % vocab for at in range(length)], 0, *kinds[i])
        for i, length in enumerate(LENGTHS)
    ]


def pending(step: int, others: Sequence[int] = (0, 1, 2)) -> list[Row]:
    kinds = ((0, WARM), (BASE_SLOT, GREEDY), (1, PLAIN))
    return [row(i, (PENDING_TOKEN,), LENGTHS[i] + step - 1, *kinds[i], made=step) for i in others]


def played(runner: GpuRunner) -> list[Told]:
    """Prompts; then two steps in flight at all times, while a third adapter comes in and a row with it, a row
    leaves, and the first adapter's slot is taken by another."""
    for slot, rank in ((0, 16), (1, 4)):
        runner.install(slot, packed(runner, slot, rank))
    first = runner.submit(StepPlan(1, prompts(), 0))
    second = runner.submit(StepPlan(2, pending(1), 0))
    answers = [told(first.wait())]
    runner.install(2, packed(runner, 9, 64))
    third = runner.submit(StepPlan(3, [row(3, [4, 5, 6], 0, 2, GREEDY), *pending(2, (2, 0))], 0))
    answers.append(told(second.wait()))
    fourth = runner.submit(StepPlan(4, [row(3, (PENDING_TOKEN,), 3, 2, GREEDY, made=1), *pending(3, [2])], 0))
    answers += [told(third.wait()), told(fourth.wait())]
    runner.clear(0)
    runner.install(0, packed(runner, 12, 8))
    answers.append(told(runner.execute(StepPlan(5, [row(4, [3, 8], 0, 0, GREEDY)], 0))))
    return answers


@pytest.mark.parametrize("kv_fp8", [False, True])
def test_graphs_answer_as_kernels_launched_one_by_one(weights: dict[str, Tensor], kv_fp8: bool) -> None:
    captured = played(opened(weights, kv_fp8=kv_fp8))
    assert captured == played(opened(weights, EagerGraphs(), kv_fp8=kv_fp8))
    assert [len(answers) for answers in captured] == [3, 3, 3, 2, 1]


def test_adapters_that_arrive_beside_steps_are_whole(weights: dict[str, Tensor]) -> None:
    """One after the other in one slot, while a step of others runs: no row sees half of one, or the one
    before. The last runs of each kind are the same bits."""
    runner = opened(weights)
    runs = [packed(runner, seed, rank) for seed, rank in ((1, 64), (2, 16))]
    runner.install(1, packed(runner, 3, 4))
    wanted = []
    for run in runs:
        runner.install(2, run)
        if ON_GPU:
            torch.cuda.synchronize()
        wanted.append(told(runner.execute(StepPlan(1, [row(0, [5], 0, 2, GREEDY)], 0))))
    assert wanted[0] != wanted[1]
    for number in range(2 * RUNS):
        runner.clear(2)
        busy = runner.submit(StepPlan(2, [row(1, [9], 0, 1, GREEDY)], 0))
        hold_copies(runner)
        runner.install(2, runs[number % 2])
        mine = runner.submit(StepPlan(3, [row(0, [5], 0, 2, GREEDY)], 0))
        busy.wait()
        assert told(mine.wait()) == wanted[number % 2]


@pytest.mark.skipif(not ON_GPU, reason="no memory is pinned")
def test_adapters_take_what_they_tell_of_host_memory_and_leave_it_to_others(
    weights: dict[str, Tensor],
) -> None:
    runner, stats = opened(weights), torch.cuda.memory.host_memory_stats
    before = stats()["active_bytes.current"]
    runs = [packed(runner, seed, 40) for seed in range(3)]
    taken = stats()["active_bytes.current"] - before
    told = sum(run.num_bytes for run in runs)
    assert told <= taken <= 1.01 * told  # the tables are small
    held = stats()["allocated_bytes.current"]  # what torch keeps to give out again included
    runs.clear()
    others = [packed(runner, seed, rank) for seed, rank in ((3, 64), (4, 8))]
    assert sum(run.num_bytes for run in others) < told
    assert stats()["allocated_bytes.current"] <= held


def test_a_step_gives_the_same_bits_each_time(weights: dict[str, Tensor]) -> None:
    runner = opened(weights)
    for slot, rank in ((0, 16), (1, 4)):
        runner.install(slot, packed(runner, slot, rank))
    first = told(runner.execute(StepPlan(1, prompts(), 0)))
    for _ in range(RUNS):
        assert told(runner.execute(StepPlan(1, prompts(), 0))) == first
