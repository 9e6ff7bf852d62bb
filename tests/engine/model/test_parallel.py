"""Rank 0 in this process and another over gloo: frames, installs, and what is there after both have ended."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil
import pytest
import torch
from pydantic import SecretStr

from engine.config import CoreSettings, EngineSettings
from engine.kernels.lora import prepare
from engine.kernels.reference import ReferenceKernels
from engine.model import group, opening
from engine.model.group import Group
from engine.model.opening import open_runner
from engine.model.parallel import Clear, ParallelRunner, RankLost, Ranks, _unpack, prepare_shared
from engine.model.runner import ModelRunner
from engine.model.sharding import AdapterPart, Shard, shard_adapter
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


def test_a_rank_that_ends_while_nothing_runs_is_noticed(tmp_path: Path) -> None:
    make("llama", tmp_path)
    alone = ModelRunner(tmp_path, OPTIONS, ReferenceKernels())
    ranks = Ranks([["sh", "-c", "echo ready; read line; read line"]])
    runner = ParallelRunner(alone, Group(Shard(0, 2), tmp_path, device=torch.device("cpu")), ranks)
    try:
        ranks.wait_ready()
        ranks._processes[0].kill()
        ranks._processes[0].wait(10)
        with pytest.raises(RankLost, match="rank 1 has gone"):
            _ = runner.max_in_flight
    finally:
        ranks.close()


def test_a_rank_that_has_loaded_leaves_when_another_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is what a library prints taken for its word."""
    make("llama", tmp_path)
    monkeypatch.setenv("ONEDNN_VERBOSE", "1")
    rank = opening._command(settings_of(tmp_path, 2), 1, tmp_path / "meeting-point")
    ranks = Ranks([rank, ["false"]])
    try:
        with pytest.raises(RankLost, match="rank 2 did not start"):
            ranks.wait_ready()
    finally:
        ranks.close()
    assert ranks._processes[0].returncode == 0


def test_ranks_that_do_not_meet_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("llama", tmp_path)
    monkeypatch.setattr(opening, "_command", lambda *_: ["sh", "-c", "echo ready; read line"])
    monkeypatch.setattr(group, "COLLECTIVE_S", 0.5)
    with contextlib.ExitStack() as closing, pytest.raises(RankLost, match="did not meet"):
        open_runner(settings_of(tmp_path, 2), closing)


def test_ranks_get_factors_of_two_dtypes_as_they_are() -> None:
    draw = torch.Generator().manual_seed(1)
    narrow, wide = torch.randn(3, 8, generator=draw).bfloat16(), torch.randn(8, 3, generator=draw)
    modules = {(0, "q_proj"): (narrow, wide, 0.5), (1, "o_proj"): (wide.t(), narrow.t(), 2.0)}
    whole = AdapterPart(modules)
    shared = prepare_shared(whole, Shard(0, 2))
    received = _unpack(shared.modules, shared.whole)
    for rank in range(2):
        ours, theirs = (prepare(shard_adapter(one, Shard(rank, 2))) for one in (whole, received))
        for where, factors in ours.modules.items():
            assert torch.equal(theirs.modules[where].a, factors.a)
            assert torch.equal(theirs.modules[where].b, factors.b)
