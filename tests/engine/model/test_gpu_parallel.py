"""Two parts of a model on two GPU runners, in Triton's interpreter, answer as the whole does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
import torch
from torch import Tensor

from engine.core.plan import BASE_SLOT, PENDING_TOKEN, RowResult, StepPlan
from engine.kernels.lora import KernelAdapter, prepare
from engine.model.gpu_runner import GpuRunner
from engine.model.group import Group
from engine.model.sharding import AdapterPart, Shard, shard_adapter
from tests.engine.model.test_gpu_runner import (
    CONFIG,
    DEVICE,
    ON_GPU,
    OPTIONS,
    WEIGHTS,
    adapter,
    assert_near,
    row,
)

pytestmark = pytest.mark.skipif(ON_GPU, reason="threads stand in for processes")
COUNT = 2
WAIT_S = 60


class Turns:
    """The threads that stand in for processes run one at a time, but where they meet: the interpreter, like a
    process of its own, is no thing to share."""

    def __init__(self) -> None:
        self.mine = threading.Lock()
        self._meeting = threading.Barrier(COUNT)
        self._parts: list[Tensor] = [torch.empty(0)] * COUNT

    def exchange(self, rank: int, part: Tensor) -> list[Tensor]:
        """Everyone's part, by rank."""
        self._parts[rank] = part.clone()
        self.mine.release()
        self._meeting.wait(WAIT_S)
        self.mine.acquire()
        parts = list(self._parts)
        self.mine.release()
        self._meeting.wait(WAIT_S)  # nobody brings the next before all have taken these
        self.mine.acquire()
        return parts


class ThreadGroup:
    """As `engine.model.group.Group`."""

    def __init__(self, turns: Turns, rank: int) -> None:
        self.shard = Shard(rank, COUNT)
        self._turns = turns

    def sum(self, partial: Tensor) -> Tensor:
        parts = self._turns.exchange(self.shard.rank, partial)
        return (parts[0].float() + parts[1].float()).to(partial.dtype)

    def join(self, columns: Tensor) -> Tensor:
        return torch.cat(self._turns.exchange(self.shard.rank, columns), dim=1)


def part_of(whole: KernelAdapter, shard: Shard) -> KernelAdapter:
    factors = {where: (f.a, f.b.t().contiguous(), f.scale) for where, f in whole.modules.items()}
    return prepare(shard_adapter(AdapterPart(factors), shard))


def both(turns: Turns, work: Callable[[int], list[list[RowResult]]]) -> list[list[list[RowResult]]]:
    def alone(rank: int) -> list[list[RowResult]]:
        with turns.mine:
            return work(rank)

    with ThreadPoolExecutor(COUNT) as pool:
        return list(pool.map(alone, range(COUNT), timeout=WAIT_S))


def test_two_parts_answer_as_the_whole_with_adapters_and_tokens_in_flight() -> None:
    """Every rank samples, and takes a token in flight from its own memory."""
    wide = adapter(100, 8)
    whole = GpuRunner(CONFIG, WEIGHTS, OPTIONS, DEVICE)
    whole.install(1, wide)
    first = [row(0, [5, 9, 11], slot=1), row(1, [4, 3])]
    wanted = [whole.execute(StepPlan(1, first, 0))]
    tokens = {result.sequence: result.token or 0 for result in wanted[0]}

    steps = [(0, 3, 1), (1, 2, BASE_SLOT)]
    known = [row(n, [tokens[n]], start, slot=slot) for n, start, slot in steps]
    wanted.append(whole.execute(StepPlan(2, known, 0)))
    pending = [row(n, [PENDING_TOKEN], start, slot=slot) for n, start, slot in steps]
    turns = Turns()

    def work(rank: int) -> list[list[RowResult]]:
        group = ThreadGroup(turns, rank)
        runner = GpuRunner(CONFIG, WEIGHTS, OPTIONS, DEVICE, group=cast(Group, group))
        runner.capture()
        runner.install(1, part_of(wide, group.shard))
        under_way = [runner.submit(StepPlan(1, first, 0)), runner.submit(StepPlan(2, pending, 0))]
        return [step.wait() for step in under_way]

    found = both(turns, work)
    assert found[0] == found[1]
    assert [r.token for r in found[0][0]] == [r.token for r in wanted[0]]  # else the second steps differ
    for ours, theirs in zip(found[0], wanted, strict=True):
        assert_near(ours, theirs)
