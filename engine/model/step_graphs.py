"""The forward pass in recorded form: a graph for each number of tokens that steps are rounded up to, and one
for each number of rows that sample.

A step's graph is chosen by three facts: its bucket of tokens; in which of the fused groups its adapters have
something (a step of base rows replays a graph without LoRA); whether any row has several tokens (else one
without the prefill kernel). Which adapters, how many and of which ranks, which sequences and how long: all of
that is read on the device.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.gpu import GpuKernels, GpuStep
from engine.kernels.lora import GROUPS
from engine.kernels.shapes import LayerCache
from engine.model.graphs import Graphs
from engine.model.guard import all_finite
from engine.model.llama import LlamaModel
from engine.model.step_inputs import StepInputs, StepSize

ALL = frozenset(GROUPS)
FAMILIES = (frozenset[str](), frozenset({"qkv"}), frozenset({"qkv", "o"}), ALL)
"""Sets of groups for which decoding is recorded: none, those that adapters usually choose, and all."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Of the rows that sample, in order; overwritten by the next step."""

    logits: Tensor  # float32 [rows, vocab]
    best: Tensor  # int64 [rows]: their argmax, the lowest id of equal ones
    finite: Tensor  # bool [rows]


@dataclass(frozen=True, slots=True)
class _Kind:
    num_rows: int  # of tensors, padding included
    groups: frozenset[str]  # one of FAMILIES
    prefill: bool


class StepGraphs:
    def __init__(
        self,
        model: LlamaModel[GpuStep],
        kernels: GpuKernels,
        caches: Sequence[LayerCache],
        inputs: StepInputs,
        graphs: Graphs,
        max_graph_tokens: int,
    ) -> None:
        """Records all of them, over inputs that are empty: nothing is written to the caches. Steps that are
        larger run once, so that none compiles a kernel later."""
        self._model = model
        self._kernels = kernels
        self._caches = caches
        self._inputs = inputs
        capacity, hidden = inputs.capacity, model.config.hidden_size
        device = inputs.last_tokens.device
        self._buckets = buckets(min(max_graph_tokens, capacity.tokens))
        self._head_buckets = buckets(min(max_graph_tokens, capacity.rows))
        self._finite = torch.zeros(capacity.tokens, dtype=torch.int32, device=device)
        self._picked = torch.zeros(capacity.rows, hidden, dtype=torch.float32, device=device)
        self._best = torch.zeros(capacity.rows, dtype=torch.int64, device=device)
        self._best_finite = torch.zeros(capacity.rows, dtype=torch.bool, device=device)
        self._steps = {kind: graphs.record(self._step(kind)) for kind in self._kinds(capacity.rows)}
        self._heads = {rows: graphs.record(self._head(rows)) for rows in reversed(self._head_buckets)}
        for rows in buckets(capacity.tokens):
            if rows > self._buckets[-1]:
                graphs.warm(self._step(_Kind(rows, ALL, prefill=True)))

    def forward(self, size: StepSize, groups: frozenset[str]) -> tuple[Tensor, Tensor]:
        """Of the step whose numbers `inputs` holds, with adapters in `groups`: the residual stream after the
        last layer, float32 [num_rows, hidden], and whether each row of it is finite, int32 [num_tokens]."""
        num_rows = rounded_up(size.num_tokens, self._buckets)
        prefill = size.num_tokens > size.num_rows
        kind = _Kind(num_rows, family_of(groups, prefill), prefill)
        recorded = self._steps.get(kind)
        residual = self._step(kind)() if recorded is None else recorded.replay()
        return residual, self._finite[: size.num_tokens]

    def heads(self, residual: Tensor, num_sampled: int) -> Heads:
        """Of the rows of `residual` that `inputs.sample_at` names."""
        rows = rounded_up(num_sampled, self._head_buckets)
        torch.index_select(residual, 0, self._inputs.sample_at[:rows], out=self._picked[:rows])
        recorded = self._heads.get(rows)
        logits = self._head(rows)() if recorded is None else recorded.replay()
        return Heads(logits[:num_sampled], self._best[:num_sampled], self._best_finite[:num_sampled])

    def _kinds(self, max_rows: int) -> list[_Kind]:
        """The largest first: the smaller ones find room in the memory that it took."""
        return [
            _Kind(tokens, groups, prefill)
            for tokens in reversed(self._buckets)
            for prefill in (True, False)
            for groups in reversed(families(prefill))
            if (tokens > 1 if prefill else tokens <= rounded_up(max_rows, self._buckets))
        ]

    def _step(self, kind: _Kind) -> Callable[[], Tensor]:
        def run() -> Tensor:
            inputs, rows = self._inputs, kind.num_rows
            step = self._kernels.begin(
                inputs.tokens(rows),
                inputs.rows(),
                inputs.token_slot[:rows],
                inputs.num_tokens,
                groups=kind.groups,
                prefill=kind.prefill,
            )
            residual = self._model.forward(step, self._caches)
            self._finite[:rows].copy_(all_finite(residual))
            return residual

        return run

    def _head(self, rows: int) -> Callable[[], Tensor]:
        def run() -> Tensor:
            logits = self._model.logits(self._picked[:rows])
            torch.argmax(logits, dim=1, out=self._best[:rows])
            self._best_finite[:rows].copy_(all_finite(logits))
            return logits

        return run


def families(prefill: bool) -> tuple[frozenset[str], ...]:
    """Where there is prefill, launches that find nothing to do are lost in it."""
    return (FAMILIES[0], ALL) if prefill else FAMILIES


def family_of(groups: frozenset[str], prefill: bool) -> frozenset[str]:
    return next(family for family in families(prefill) if groups <= family)


def buckets(most: int) -> tuple[int, ...]:
    """1, 2, 4, … and `most` itself."""
    powers = [1]
    while powers[-1] * 2 < most:
        powers.append(powers[-1] * 2)
    return (*powers, most) if most > 1 else (1,)


def rounded_up(count: int, sizes: Sequence[int]) -> int:
    """The next of `sizes`; beyond the last, `count` itself."""
    at = bisect.bisect_left(sizes, count)
    return sizes[at] if at < len(sizes) else count
