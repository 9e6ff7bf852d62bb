"""The demo adapters with their goldens, and a driver that steps a `ModelRunner` without a core."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from adapters.base import BaseSpec
from adapters.manifest import read_manifest
from engine.core.plan import BASE_SLOT, Row, RowResult, SamplePlan, StepPlan
from engine.core.protocol import Sampling, TokenLogprob
from engine.kernels.lora import KernelAdapter, prepare
from engine.model.runner import ModelRunner

DEMO = Path(__file__).parents[3] / "deploy" / "local" / "demo"
NAMES = sorted(path.name for path in DEMO.iterdir() if (path / "golden.json").exists())
GREEDY = Sampling(max_tokens=64, seed=0, temperature=0.0, logprobs=2)


@dataclass(frozen=True)
class _Adapter:
    modules: dict[tuple[int, str], tuple[torch.Tensor, torch.Tensor, float]]


def kernel_adapter(folder: Path, base: BaseSpec) -> KernelAdapter:
    """An uploaded adapter in kernel layout, past the store: scales and names as the manifest reads them."""
    from safetensors.torch import load_file

    weights = folder / "adapter_model.safetensors"
    manifest = read_manifest((folder / "adapter_config.json").read_bytes(), weights, base)
    tensors = load_file(weights)
    modules = {}
    for module in manifest.modules:
        stems = [
            name.removesuffix(".lora_A.weight")
            for name in tensors
            if f".layers.{module.layer}." in name and name.endswith(f".{module.site}.lora_A.weight")
        ]
        assert len(stems) == 1
        a, b = tensors[f"{stems[0]}.lora_A.weight"], tensors[f"{stems[0]}.lora_B.weight"]
        modules[module.layer, module.site] = (a, b, module.scale)
    return prepare(_Adapter(modules))


def golden(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEMO / name / "golden.json").read_bytes())
    return found


@dataclass
class Stream:
    """One sequence under way. `cuts` are the sizes of its first chunks; the rest comes in one."""

    prompt: list[int]
    slot: int = BASE_SLOT
    num_tokens: int = 24
    cuts: Sequence[int] = ()
    sampling: Sampling = GREEDY
    generated: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    number: int = -1

    @property
    def done(self) -> bool:
        return len(self.generated) >= self.num_tokens or (bool(self.generated) and self.generated[-1] == 2)


class Driver:
    """Steps all sequences together until each has ended."""

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._free = list(range(runner.num_blocks))
        self._numbers = itertools.count()
        self._steps = itertools.count()

    def run(self, sequences: Sequence[Stream]) -> None:
        for sequence in sequences:
            sequence.number = next(self._numbers)
            needed = -(-(len(sequence.prompt) + sequence.num_tokens) // self._runner.block_size)
            missing = needed - len(sequence.blocks)
            sequence.blocks += [self._free.pop() for _ in range(missing)]
        while live := [sequence for sequence in sequences if not sequence.done]:
            rows = [self._row(sequence) for sequence in live]
            results = self._runner.execute(StepPlan(next(self._steps), rows, 0))
            self._apply(live, rows, {result.sequence: result for result in results})
        for sequence in sequences:
            self._free += sequence.blocks

    def _row(self, sequence: Stream) -> Row:
        tokens = [*sequence.prompt, *sequence.generated][sequence.computed :]
        cut = sequence.cuts[0] if sequence.cuts else len(tokens)
        sequence.cuts = sequence.cuts[1:]
        sample = None
        if cut >= len(tokens):
            sample = SamplePlan(sequence.sampling, 0, sequence.prompt, tuple(sequence.generated))
        return Row(sequence.number, tokens[:cut], sequence.computed, sequence.blocks, sequence.slot, sample)

    @staticmethod
    def _apply(live: Sequence[Stream], rows: Sequence[Row], results: dict[int, RowResult]) -> None:
        for sequence, row in zip(live, rows, strict=True):
            sequence.computed += len(row.tokens)
            if row.sample is None:
                continue
            result = results[sequence.number]
            assert not result.error
            assert result.token is not None
            assert result.logprob is not None
            sequence.generated.append(result.token)
            sequence.logprobs.append(result.logprob)
