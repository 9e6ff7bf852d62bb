"""The core's real loop over the GPU runner in Triton's interpreter: two steps in flight change no answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.core.journal import Journal
from engine.core.limits import CoreConfig, ModelFacts
from engine.core.loop import Loop, Parts
from engine.core.plan import PENDING_TOKEN, StepPlan
from engine.core.protocol import AddRequest, Sampling, Tokens
from engine.model.gpu_runner import GpuPendingStep, GpuRunner
from tests.engine.core.fakes import Ask, FakeLoaders, FakeTransport, add
from tests.engine.model.test_gpu_runner import CONFIG, DEVICE, ON_GPU, OPTIONS, WEIGHTS, adapter

pytestmark = pytest.mark.skipif(ON_GPU, reason="bits may follow a product's shape there")
GREEDY = Sampling(max_tokens=3, seed=1, temperature=0.0, logprobs=2, ignore_eos=True)
WARM = Sampling(max_tokens=3, seed=2, temperature=0.9, top_k=20, ignore_eos=True)
TOLD = Sampling(max_tokens=2, seed=3, repetition_penalty=1.3, prompt_logprobs=True, ignore_eos=True)
ADAPTERS = {"a": adapter(100, 16, layers=1), "b": adapter(300, 4, ("q_proj", "down_proj"), layers=1)}
SHALLOW = replace(CONFIG, num_layers=1)


class Counted:
    """The runner as it is, or one step at a time."""

    def __init__(self, runner: GpuRunner, max_in_flight: int) -> None:
        self.max_in_flight = max_in_flight
        self.install, self.clear = runner.install, runner.clear
        self._runner = runner
        self.num_pending = 0
        self.kinds: set[tuple[bool, bool]] = set()

    def submit(self, plan: StepPlan) -> GpuPendingStep:
        self.num_pending += sum(PENDING_TOKEN in row.tokens for row in plan.rows)
        adapted, several = any(row.slot >= 0 for row in plan.rows), plan.num_tokens > len(plan.rows)
        self.kinds.add((adapted, several))
        return self._runner.submit(plan)


def requests() -> list[AddRequest]:
    prompts = [[5, 9, 11, 3, 60, 42, 7, 8, 50], [4, 8], [30, 31, 32, 33]]
    asked = [("a", GREEDY), (None, WARM), ("b", TOLD)]
    return [
        add(str(i), prompt, Ask(adapter=name, sampling=sampling))
        for i, (prompt, (name, sampling)) in enumerate(zip(prompts, asked, strict=True))
    ]


def serve(max_in_flight: int, folder: Path) -> tuple[Counted, list[Tokens]]:
    """More adapters than slots, prompts longer than a step's share."""
    options = replace(OPTIONS, num_slots=1, max_tokens=8, max_graph_tokens=8)
    runner = Counted(GpuRunner(SHALLOW, WEIGHTS, options, DEVICE), max_in_flight)
    loaders = FakeLoaders()
    loaders.handle_of = lambda ref: ADAPTERS[ref.artefact]
    transport = FakeTransport()
    config = CoreConfig(num_blocks=12, block_size=16, step_tokens=8, max_running=5, num_slots=1)
    facts = ModelFacts("base", "digest", 48, 61, CONFIG.eos_token_ids)
    journal = Journal(folder / "journal")
    loop = Loop(config, facts, Parts(runner, loaders, transport, journal))
    transport.inbox.extend(requests())
    while loop.step() or transport.inbox:
        continue
    journal.close()
    loop.check()
    return runner, [frame for frame in transport.sent if isinstance(frame, Tokens)]


def test_two_steps_in_flight_answer_as_one_at_a_time(tmp_path: Path) -> None:
    told = []
    for max_in_flight in (1, 2):
        folder = tmp_path / str(max_in_flight)
        folder.mkdir()
        runner, frames = serve(max_in_flight, folder)
        assert (runner.num_pending > 0) == (max_in_flight == 2)
        assert len(runner.kinds) >= 3  # decoding and prefill, with adapters and without
        answers = {
            name: [
                (frame.tokens, frame.logprobs, frame.prompt_logprobs)
                for frame in frames
                if (frame.request, frame.choice) == name
            ]
            for name in {(frame.request, frame.choice) for frame in frames}
        }
        assert {name: sum(len(part[0]) for part in parts) for name, parts in answers.items()} == {
            ("0", 0): 3, ("1", 0): 3, ("2", 0): 2,
        }  # fmt: skip
        told.append(answers)
    assert told[0] == told[1]
