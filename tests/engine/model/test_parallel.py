"""Rank 0 in this process and another over gloo: frames, installs, and what is there after both have ended."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr

from engine.config import CoreSettings, EngineSettings
from engine.kernels.lora import prepare
from engine.kernels.reference import ReferenceKernels
from engine.model.opening import open_runner
from engine.model.parallel import Clear, RankLost, Ranks
from engine.model.runner import ModelRunner
from tests.engine.model.test_families import make
from tests.engine.model.test_sharding import OPTIONS, answers, random_adapter


def settings_of(model: Path, tensor_parallel: int) -> CoreSettings:
    settings = EngineSettings(
        token=SecretStr("a-token-of-the-tests"),
        model=model,
        dtype="float32",
        num_blocks=OPTIONS.num_blocks,
        max_model_len=OPTIONS.max_model_len,
        slots=OPTIONS.num_slots,
        threads=1,
        tensor_parallel=tensor_parallel,
    )
    return CoreSettings.of(settings, "")


def test_two_processes_answer_as_one(tmp_path: Path) -> None:
    make("qwen2", tmp_path)
    whole = ModelRunner(tmp_path, OPTIONS, ReferenceKernels())
    adapters = [random_adapter(whole, seed, rank) for seed, rank in ((1, 3), (2, 8))]
    for slot, adapter in enumerate(adapters):
        whole.install(slot, prepare(adapter))
    others = set(psutil.Process().children())
    with contextlib.ExitStack() as closing:
        opened = open_runner(settings_of(tmp_path, 2), closing)
        [rank] = set(psutil.Process().children()) - others
        opened.runner.install(0, opened.prepare(adapters[1]))  # replaced below
        opened.runner.clear(0)
        for slot, adapter in enumerate(adapters):
            opened.runner.install(slot, opened.prepare(adapter))
        assert answers(opened.runner) == answers(whole)
    assert not rank.is_running()


def test_a_rank_that_can_not_start_is_said() -> None:
    ranks = Ranks([["false"]])
    try:
        with pytest.raises(RankLost, match="rank 1 did not start"):
            ranks.wait_ready()
        ranks._processes[0].wait(10)  # its output ends a moment before its input does
        with pytest.raises(RankLost, match="rank 1 has gone"):
            ranks.send(Clear(0))
    finally:
        ranks.close()
