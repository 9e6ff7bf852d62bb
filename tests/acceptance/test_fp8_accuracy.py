"""What FP8 costs in accuracy on the demo model: the distribution after each token of an English text, against
that of bfloat16.

The text is one context. The FP8 numerics are those of a GPU in emulation (docs/decisions/0014); scales of KV
are measured at start on the built-in text, which has nothing in common with this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from adapters.base import BaseSpec
from adapters.prompt import PromptEncoder
from engine.core.plan import BASE_SLOT, Row
from engine.model.runner import ModelRunner, RunnerOptions
from tests.acceptance.conftest import Record
from tests.engine.model.goldens import DEMO, kernel_adapter

TEXT = Path(__file__).with_name("english.txt")
CHUNK = 128
ADAPTER = "triage"
PLAIN = RunnerOptions(max_model_len=4096, num_blocks=256, num_slots=1, num_threads=1)
FP8_WEIGHTS = replace(PLAIN, quantization="fp8")
FP8_KV = replace(PLAIN, kv_cache_dtype="fp8_e4m3")
BOTH = replace(FP8_WEIGHTS, kv_cache_dtype="fp8_e4m3")
FLOAT32 = replace(PLAIN, dtype="float32")


@dataclass(frozen=True)
class Agreement:
    """Over all positions of a text."""

    kl: float  # mean KL(reference || other), in nats
    worst_kl: float
    top_1: float  # share of positions with the same most likely token
    perplexity: float  # of the other

    def __str__(self) -> str:
        return (
            f"KL {self.kl:.4f} nats (largest {self.worst_kl:.2f}), "
            f"same best token {self.top_1:.1%}, perplexity {self.perplexity:.2f}"
        )


@dataclass(frozen=True)
class Case:
    """What is compared, and limits that leave about as much room again as was measured."""

    options: tuple[RunnerOptions, RunnerOptions]
    most_kl: float
    least_top_1: float
    adapter: str | None = None


CASES = {
    "bfloat16 itself": Case((FLOAT32, PLAIN), 0.001, 0.98),
    "FP8 weights": Case((PLAIN, FP8_WEIGHTS), 0.04, 0.85),
    "FP8 KV": Case((PLAIN, FP8_KV), 0.02, 0.90),
    "FP8 weights and KV": Case((PLAIN, BOTH), 0.06, 0.83),
    f"FP8 weights and KV, under the adapter {ADAPTER}": Case((PLAIN, BOTH), 0.07, 0.80, ADAPTER),
}
MOST_LOSS = 1.08  # of perplexity, as a ratio


def opened(model_dir: Path, options: RunnerOptions, adapter: str | None) -> ModelRunner:
    runner = ModelRunner(model_dir, options)
    if adapter is not None:
        runner.install(0, kernel_adapter(DEMO / adapter, BaseSpec.from_dir(model_dir, "demo")))
    return runner


def log_probabilities(runner: ModelRunner, tokens: Sequence[int], slot: int) -> Iterator[Tensor]:
    """Of the token after each, float32 [chunk, vocab], chunk by chunk of one context."""
    table = list(range(-(-len(tokens) // runner.block_size)))
    for start in range(0, len(tokens), CHUNK):
        part = list(tokens[start : start + CHUNK])
        with torch.inference_mode():
            row = Row(0, part, start, table, slot)
            step = runner._kernels.plan(runner._model.attention, [row], runner._slots)
            residual = runner._model.forward(step, runner._caches)
            yield runner._model.logits(residual[: len(part)]).log_softmax(dim=1)


def agreement(
    model_dir: Path,
    tokens: Sequence[int],
    options: tuple[RunnerOptions, RunnerOptions],
    adapter: str | None = None,
) -> Agreement:
    """Of the second with the first, under an adapter or none."""
    slot = BASE_SLOT if adapter is None else 0
    streams = [log_probabilities(opened(model_dir, each, adapter), tokens, slot) for each in options]
    divergence, same, surprise = [], [], []
    for start, (wanted, found) in zip(range(0, len(tokens), CHUNK), zip(*streams, strict=True), strict=True):
        divergence.append((wanted.exp() * (wanted - found)).sum(dim=1))
        same.append(wanted.argmax(dim=1) == found.argmax(dim=1))
        following = torch.tensor(tokens[start + 1 : start + 1 + CHUNK])
        surprise.append(-found[: len(following)].gather(1, following.unsqueeze(1)).squeeze(1))
    kl = torch.cat(divergence).double()
    return Agreement(
        kl.mean().item(),
        kl.max().item(),
        torch.cat(same).double().mean().item(),
        torch.cat(surprise).double().mean().exp().item(),
    )


def test_fp8_accuracy(demo_model_dir: Path, record: Record) -> None:
    tokens = PromptEncoder(demo_model_dir).encode_text(TEXT.read_text(), 4096)
    assert len(tokens) >= 2_000
    itself = {name: agreement(demo_model_dir, tokens, (PLAIN, PLAIN), name) for name in (None, ADAPTER)}
    found = {
        name: agreement(demo_model_dir, tokens, case.options, case.adapter) for name, case in CASES.items()
    }
    record.write(
        "The demo model (SmolLM2-135M-Instruct) over one English text as one context: the distribution after "
        "each token against that of bfloat16 (bfloat16's own against that of float32). Weights are quantized "
        "at load, by output; activations by token; KV has one scale a layer for keys and one for values, "
        "measured at start on another text. The FP8 numerics run in emulation on a CPU.",
        {
            "tokens": len(tokens),
            "perplexity of bfloat16": f"{itself[None].perplexity:.2f}",
            f"perplexity of bfloat16 under the adapter {ADAPTER}": f"{itself[ADAPTER].perplexity:.2f}",
            **{name: str(each) for name, each in found.items()},
        },
    )
    for each in itself.values():
        assert (each.kl, each.top_1) == (0.0, 1.0), "the same numerics twice"
    for name, case in CASES.items():
        assert found[name].kl < case.most_kl, name
        assert found[name].top_1 > case.least_top_1, name
        assert found[name].perplexity < MOST_LOSS * itself[case.adapter].perplexity, name
