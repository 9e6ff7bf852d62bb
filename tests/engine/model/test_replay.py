"""A recorded trace of the real model replays to the same bits, and so does a run with two steps in flight."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.base import BaseSpec
from engine.core.backlog import Backlog
from engine.core.journal import Journal
from engine.core.limits import CoreConfig, ModelFacts
from engine.core.loop import Loop, Parts
from engine.core.plan import PENDING_TOKEN, RowResult, StepPlan
from engine.core.protocol import AddRequest, Ended, FromCore, Outcome, Sampling, Tokens
from engine.core.replay import NamedHandle, RecordedRunner, filled_in, replay
from engine.core.trace import Cleared, Installed, TraceEntry, TraceWriter, decode, encode, read_trace
from engine.model.runner import ModelRunner, RunnerOptions
from tests.engine.core.fakes import Ask, FakeLoaders, FakeTransport, add
from tests.engine.model.goldens import DEMO, NAMES, golden, kernel_adapter

SAMPLINGS = (
    Sampling(max_tokens=6, seed=1, temperature=0.0, logprobs=3, ignore_eos=True),
    Sampling(max_tokens=6, seed=2, temperature=0.9, top_p=0.9, logprobs=0, ignore_eos=True),
    Sampling(max_tokens=6, seed=3, repetition_penalty=1.2, frequency_penalty=0.4, logprobs=1),
    Sampling(max_tokens=4, seed=4, logprobs=2, prompt_logprobs=True, min_tokens=2),
)


class KeptResults:
    """A real runner that keeps what it answers. With two steps in flight it computes each when it is waited
    for, and takes pending tokens from the step before, as a device would from its memory."""

    def __init__(self, runner: ModelRunner, max_in_flight: int) -> None:
        self.runner = runner
        self.max_in_flight = max_in_flight
        self.kept: list[list[RowResult]] = []
        self.num_pending = 0

    def submit(self, plan: StepPlan) -> LateStep:
        decoded = decode(encode(plan))  # its own copy: the plan's lists change
        assert isinstance(decoded, StepPlan)
        self.num_pending += sum(PENDING_TOKEN in row.tokens for row in decoded.rows)
        return LateStep(self, decoded)

    def install(self, slot: int, adapter: object) -> None:
        self.runner.install(slot, adapter)

    def clear(self, slot: int) -> None:
        self.runner.clear(slot)


@dataclass(frozen=True)
class LateStep:
    owner: KeptResults
    plan: StepPlan

    def wait(self) -> list[RowResult]:
        kept = self.owner.kept
        self.owner.kept.append(self.owner.runner.execute(filled_in(self.plan, kept[-1] if kept else [])))
        return kept[-1]


@pytest.fixture(scope="module")
def runner(demo_model_dir: Path) -> ModelRunner:
    """With few blocks and slots, so that sequences are preempted and slots refilled."""
    options = RunnerOptions("bfloat16", 1024, num_blocks=24, num_slots=2, num_threads=1)
    return ModelRunner(demo_model_dir, options)


@pytest.fixture(scope="module")
def handles(demo_model_dir: Path) -> dict[str, object]:
    base = BaseSpec.from_dir(demo_model_dir, "demo")
    return {name: kernel_adapter(DEMO / name, base) for name in NAMES[:3]}


def test_a_mixed_run_with_adapters_replays_to_the_same_tokens_and_logprobs(
    runner: ModelRunner, handles: dict[str, object], tmp_path: Path
) -> None:
    """The replay runs over the blocks as the recorded run left them."""
    recorder, player = KeptResults(runner, 1), KeptResults(runner, 1)
    run_core(recorder, tmp_path, handles)
    entries = list(read_trace(tmp_path / "trace"))
    assert any(isinstance(entry, Cleared) for entry in entries)
    assert any(result.logprob for step in recorder.kept for result in step)
    assert any(result.prompt_logprobs for step in recorder.kept for result in step)
    assert replay(entries, player, lambda ref: handles[ref.artefact]) == recorder.kept
    empty_slots(runner, entries)


def test_two_steps_in_flight_give_the_real_models_same_tokens(
    runner: ModelRunner, handles: dict[str, object], tmp_path: Path
) -> None:
    told = []
    for max_in_flight in (1, 2):
        folder = tmp_path / str(max_in_flight)
        folder.mkdir()
        kept = KeptResults(runner, max_in_flight)
        frames = run_core(kept, folder, handles)
        empty_slots(runner, list(read_trace(folder / "trace")))
        assert (kept.num_pending > 0) == (max_in_flight == 2)
        told.append({(f.request, f.choice): (f.tokens, f.logprobs) for f in gathered(frames)})
    assert told[0] == told[1]


def gathered(frames: list[FromCore]) -> list[Tokens]:
    backlog: Backlog[FromCore] = Backlog()
    for frame in frames:
        backlog.add(frame)
    return [frame for frame in backlog.take() if isinstance(frame, Tokens)]


def empty_slots(runner: ModelRunner, entries: list[TraceEntry]) -> None:
    """As they were before the trace."""
    filled: set[int] = set()
    for entry in entries:
        if isinstance(entry, Installed):
            filled.add(entry.slot)
        elif isinstance(entry, Cleared):
            filled.remove(entry.slot)
    for slot in filled:
        runner.clear(slot)


def requests() -> list[AddRequest]:
    names = [*NAMES[:3], None]
    prompts = [golden(name)[0]["prompt_token_ids"] for name in NAMES[:3]]
    return [
        add(str(i), prompts[i % 3][: 40 + i], Ask(adapter=names[i % 4], sampling=SAMPLINGS[(i // 2) % 4]))
        for i in range(8)
    ]


def run_core(kept: KeptResults, folder: Path, handles: dict[str, object]) -> list[FromCore]:
    """Serves `requests`, traced to `folder/trace`; the frames that it sent."""
    runner = kept.runner
    facts = ModelFacts("base", "digest", 1024, runner.vocab_size, runner.eos_token_ids)
    config = CoreConfig(
        num_blocks=runner.num_blocks, block_size=16, step_tokens=48, max_running=8, num_slots=runner.num_slots
    )
    loaders = FakeLoaders()
    loaders.handle_of = lambda ref: NamedHandle(ref, handles[ref.artefact])
    transport = FakeTransport()
    writer = TraceWriter(folder / "trace", max_bytes=10_000_000)
    journal = Journal(folder / "journal")
    loop = Loop(config, facts, Parts(RecordedRunner(kept, writer), loaders, transport, journal))
    transport.inbox.extend(requests())
    while loop.step() or transport.inbox:
        continue
    loop.check()
    writer.close()
    journal.close()
    outcomes = [frame.outcome for frame in transport.sent if isinstance(frame, Ended)]
    assert outcomes == [Outcome.FINISHED] * 8
    return transport.sent
