"""A recorded trace of the real model replays to the same bits."""

from __future__ import annotations

from pathlib import Path

from adapters.base import BaseSpec
from engine.core.journal import Journal
from engine.core.limits import CoreConfig, ModelFacts
from engine.core.loop import Loop, Parts
from engine.core.plan import FinishedStep, RowResult, StepPlan
from engine.core.protocol import AddRequest, Sampling
from engine.core.replay import NamedHandle, RecordedRunner, replay
from engine.core.trace import Cleared, Installed, TraceWriter, read_trace
from engine.model.runner import ModelRunner, RunnerOptions
from tests.engine.core.fakes import Ask, FakeLoaders, FakeTransport, add
from tests.engine.model.goldens import DEMO, NAMES, golden, kernel_adapter

SAMPLINGS = (
    Sampling(max_tokens=6, seed=1, temperature=0.0, logprobs=3, ignore_eos=True),
    Sampling(max_tokens=6, seed=2, temperature=0.9, top_p=0.9, logprobs=0, ignore_eos=True),
    Sampling(max_tokens=6, seed=3, repetition_penalty=1.2, frequency_penalty=0.4, logprobs=1),
    Sampling(max_tokens=4, seed=4, logprobs=2, prompt_logprobs=True, min_tokens=2),
)


class KeptResults(ModelRunner):
    """Keeps what it answers."""

    def __init__(self, model_dir: Path, options: RunnerOptions) -> None:
        super().__init__(model_dir, options)
        self.kept: list[list[RowResult]] = []

    def submit(self, plan: StepPlan) -> FinishedStep:
        step = super().submit(plan)
        self.kept.append(step.wait())
        return step


def test_a_mixed_run_with_adapters_replays_to_the_same_tokens_and_logprobs(
    demo_model_dir: Path, tmp_path: Path
) -> None:
    """Few blocks and slots, so that sequences are preempted and slots refilled; the replay runs over the
    blocks as the recorded run left them."""
    options = RunnerOptions("bfloat16", 1024, num_blocks=24, num_slots=2, num_threads=1)
    runner = KeptResults(demo_model_dir, options)
    base = BaseSpec.from_dir(demo_model_dir, "demo")
    handles = {name: kernel_adapter(DEMO / name, base) for name in NAMES[:3]}
    writer = TraceWriter(tmp_path / "trace", max_bytes=10_000_000)
    run_core(runner, writer, tmp_path, handles, requests())
    entries = list(read_trace(tmp_path / "trace"))
    installs = [entry for entry in entries if isinstance(entry, Installed)]
    clears = [entry for entry in entries if isinstance(entry, Cleared)]
    assert len(clears) > 0
    for slot in range(2):
        if sum(e.slot == slot for e in installs) > sum(e.slot == slot for e in clears):
            runner.clear(slot)
    recorded, runner.kept = runner.kept, []
    replayed = replay(entries, runner, lambda ref: handles[ref.artefact])
    assert any(result.logprob for step in recorded for result in step)
    assert any(result.prompt_logprobs for step in recorded for result in step)
    assert replayed == recorded


def requests() -> list[AddRequest]:
    names = [*NAMES[:3], None]
    prompts = [golden(name)[0]["prompt_token_ids"] for name in NAMES[:3]]
    return [
        add(str(i), prompts[i % 3][: 40 + i], Ask(adapter=names[i % 4], sampling=SAMPLINGS[(i // 2) % 4]))
        for i in range(8)
    ]


def run_core(
    runner: ModelRunner,
    writer: TraceWriter,
    folder: Path,
    handles: dict[str, object],
    frames: list[AddRequest],
) -> None:
    facts = ModelFacts("base", "digest", 1024, runner.vocab_size, runner.eos_token_ids)
    config = CoreConfig(
        num_blocks=runner.num_blocks, block_size=16, step_tokens=48, max_running=8, num_slots=runner.num_slots
    )
    loaders = FakeLoaders()
    loaders.handle_of = lambda ref: NamedHandle(ref, handles[ref.artefact])
    transport = FakeTransport()
    journal = Journal(folder / "journal")
    recorded = RecordedRunner(runner, writer)
    loop = Loop(config, facts, Parts(recorded, loaders, transport, journal))
    transport.inbox.extend(frames)
    while loop.step() or transport.inbox:
        continue
    loop.check()
    assert {line.outcome for line in transport.sent if hasattr(line, "outcome")} == {"finished"}
    writer.close()
    journal.close()
