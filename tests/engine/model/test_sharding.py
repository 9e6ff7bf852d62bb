"""The parts of a model, each computed in a thread of its own, add up to the whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.core.plan import BASE_SLOT, Row, Runner, SamplePlan, StepPlan
from engine.core.protocol import Sampling
from engine.kernels.lora import prepare
from engine.kernels.reference import ReferenceKernels
from engine.model.config import ModelRefused, read_config
from engine.model.group import Group
from engine.model.runner import ModelRunner, RunnerOptions
from engine.model.sharding import AdapterPart, Shard, check_shards, shard_adapter
from tests.engine.model.test_families import make

OPTIONS = RunnerOptions("float32", 64, num_blocks=16, num_slots=2, num_threads=1)


class ThreadGroup(Group):
    """`Group` for parts that run in threads of this process."""

    def __init__(self, shard: Shard, table: list[Tensor | None], barrier: threading.Barrier) -> None:
        super().__init__(shard, Path(), device=torch.device("cpu"))
        self._table, self._barrier = table, barrier

    def _gather(self, mine: Tensor) -> list[Tensor]:
        self._table[self.shard.rank] = mine
        self._barrier.wait(30)
        parts = [part.clone() for part in self._table if part is not None]
        self._barrier.wait(30)
        assert len(parts) == self.shard.count
        return parts


def together(
    count: int, work: Callable[[ThreadGroup], list[list[int | None]]]
) -> list[list[list[int | None]]]:
    """What each part's `work` returns."""
    table: list[Tensor | None] = [None] * count
    barrier = threading.Barrier(count)
    with ThreadPoolExecutor(count) as pool:
        groups = [ThreadGroup(Shard(rank, count), table, barrier) for rank in range(count)]
        return list(pool.map(work, groups))


def random_adapter(runner: ModelRunner, seed: int, rank: int) -> AdapterPart:
    draw = torch.Generator().manual_seed(seed)
    return AdapterPart(
        {
            (layer, site): (
                torch.randn(rank, inputs, generator=draw) * 0.1,
                torch.randn(outputs, rank, generator=draw) * 0.1,
                1.5,
            )
            for layer in range(runner.config.num_layers)
            for site, (inputs, outputs) in runner.config.sites.items()
        }
    )


def answers(runner: Runner) -> list[list[int | None]]:
    """Three rows, two of them with adapters; a prompt in two chunks, then some tokens."""
    greedy = Sampling(max_tokens=8, seed=0, temperature=0.0)
    rows = [(0, [5, 9, 11, 3, 60], BASE_SLOT), (1, [42, 7, 8, 90, 13, 21], 0), (2, [22, 23, 24], 1)]
    known = {number: list(prompt) for number, prompt, _ in rows}
    told: list[list[int | None]] = []
    runner.submit(StepPlan(0, [Row(1, known[1][:2], 0, [2, 3], 0)], 1)).wait()
    done = {0: 0, 1: 2, 2: 0}
    for step in range(1, 7):
        plan = [
            Row(
                number,
                known[number][done[number] :],
                done[number],
                [2 * number, 2 * number + 1],
                slot,
                SamplePlan(greedy, 0, prompt, known[number][len(prompt) :]),
            )
            for number, prompt, slot in rows
        ]
        results = runner.submit(StepPlan(step, plan, 1)).wait()
        told.append([result.token for result in results])
        for result in results:
            assert result.token is not None
            done[result.sequence] = len(known[result.sequence])
            known[result.sequence].append(result.token)
    return told


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "llama-tied-biased"])
def test_two_parts_answer_as_the_whole(family: str, tmp_path: Path) -> None:
    make(family, tmp_path)
    whole = ModelRunner(tmp_path, OPTIONS, ReferenceKernels())
    adapters = [random_adapter(whole, seed, rank) for seed, rank in ((1, 3), (2, 8))]
    for slot, adapter in enumerate(adapters):
        whole.install(slot, prepare(adapter))

    def work(group: ThreadGroup) -> list[list[int | None]]:
        runner = ModelRunner(tmp_path, OPTIONS, ReferenceKernels(), group)
        for slot, adapter in enumerate(adapters):
            runner.install(slot, prepare(shard_adapter(adapter, group.shard)))
        return answers(runner)

    expected = answers(whole)
    assert together(2, work) == [expected, expected]


def test_a_model_that_does_not_divide_is_refused(tmp_path: Path) -> None:
    make("llama", tmp_path)
    with pytest.raises(ModelRefused, match="num_key_value_heads"):
        check_shards(read_config(tmp_path), 5)
