"""The runner around the numbers: budgets, options, prompt log-probabilities, one row's failure."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.core.plan import BASE_SLOT, Row, RowResult, SamplePlan, StepPlan
from engine.core.protocol import Sampling, TokenLogprob
from engine.kernels.lora import KernelAdapter, prepare
from engine.model.config import ModelRefused
from engine.model.runner import ModelRunner, RunnerOptions
from tests.engine.kernels.test_kernels import Host
from tests.engine.model.test_families import make

PROMPT = [5, 9, 11, 3, 60, 42, 7, 8, 90, 13, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30]
GREEDY = Sampling(max_tokens=4, seed=0, temperature=0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    make("llama", path)
    return path


@pytest.fixture
def runner(folder: Path) -> ModelRunner:
    return ModelRunner(folder, RunnerOptions("float32", 64, num_blocks=8, num_slots=2, num_threads=1))


def row(
    number: int, start: int, end: int, *, last: bool, slot: int = BASE_SLOT, logprobs: bool = False
) -> Row:
    sample = SamplePlan(GREEDY, 0, PROMPT, ()) if last else None
    table = [2 * number, 2 * number + 1]
    return Row(number, PROMPT[start:end], start, table, slot, sample, logprobs)


def step(runner: ModelRunner, *rows: Row) -> list[RowResult]:
    return runner.execute(StepPlan(1, rows, 0))


def test_prompt_logprobs_are_the_same_whole_and_in_chunks(runner: ModelRunner) -> None:
    [whole] = step(runner, row(0, 0, 20, last=True, logprobs=True))
    assert len(whole.prompt_logprobs) == 19
    told: list[TokenLogprob | None] = []
    for start, end in ((0, 1), (1, 8), (8, 20)):
        _, chunk = step(runner, row(1, 0, 20, last=True), row(2, start, end, last=end == 20, logprobs=True))
        assert len(chunk.prompt_logprobs) == end - start - (start == 0)
        told += chunk.prompt_logprobs
    for one, other, token in zip(whole.prompt_logprobs, told, PROMPT[1:], strict=True):
        assert one is not None
        assert other is not None
        assert one.token == other.token == token
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)
        assert one.logprob <= one.top[0][1]
        assert len(one.top) == 20


def test_a_chunk_without_sampling_has_no_result(runner: ModelRunner) -> None:
    results = step(runner, row(0, 0, 5, last=False), row(1, 0, 20, last=True))
    assert [result.sequence for result in results] == [1]


def poisoned(runner: ModelRunner) -> KernelAdapter:
    inputs, outputs = runner.config.sites["down_proj"]
    return prepare(
        Host({(1, "down_proj"): (torch.full((2, inputs), torch.inf), torch.ones(outputs, 2), 1.0)})
    )


def test_a_poisoned_adapter_fails_its_own_row_and_leaves_with_its_slot(runner: ModelRunner) -> None:
    [before] = step(runner, row(0, 0, 20, last=True))
    runner.install(1, poisoned(runner))
    bad, good = step(runner, row(1, 0, 20, last=True, slot=1), row(2, 0, 20, last=True))
    assert bad.token is None
    assert "finite" in bad.error
    assert good.token == before.token
    [reused] = step(runner, row(1, 0, 20, last=True))  # on the blocks that held what the adapter wrote
    assert reused.token == before.token
    runner.clear(1)
    with pytest.raises(AssertionError, match="slot 1 is empty"):
        step(runner, row(1, 0, 20, last=True, slot=1))


def test_blocks_come_from_a_byte_budget(folder: Path) -> None:
    per_block = 2 * 2 * 16 * 2 * 16 * 4  # K and V, layers, positions, kv heads, padded head, bytes
    options = RunnerOptions("float32", 64, kv_bytes=10 * per_block + 5, num_threads=1)
    assert ModelRunner(folder, options).num_blocks == 10
    with pytest.raises(ModelRefused, match="holds no block"):
        ModelRunner(folder, RunnerOptions("float32", 64, kv_bytes=per_block - 1))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (RunnerOptions(dtype="float16"), "float16"),
        (RunnerOptions(rope_dtype="int8"), "int8"),
        (RunnerOptions(block_size=24), "block size"),
        (RunnerOptions(max_model_len=257), "max_position_embeddings"),
    ],
)
def test_options_that_can_not_be_honoured_are_refused(
    folder: Path, options: RunnerOptions, reason: str
) -> None:
    with pytest.raises(ModelRefused, match=reason):
        ModelRunner(folder, options)
