"""What one step computes, as plain data, and the seam to whatever computes it.

`engine/core` makes plans and never sees a tensor; `engine/model/runner.py` carries them out. A trace of plans
replays to the same bits, and is what tensor-parallel ranks will receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.core.protocol import AdapterRef, Sampling, Tier, TokenLogprob

BASE_SLOT = -1


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """Ask for the next token after a row. `generated` (tokens so far, this choice's) feeds the penalties,
    and its length is the sampling counter: the draw is a pure function of (seed, choice, len(generated))."""

    sampling: Sampling
    choice: int
    prompt: Sequence[int]
    generated: Sequence[int]
    banned: tuple[int, ...] = ()  # token ids that can't be chosen now (min_tokens)


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's part of a step: positions start .. start + len(tokens) - 1 are computed and their KV
    written to the blocks of `block_table`; it attends to every position up to its own."""

    sequence: int  # process-wide number of the sequence (one per choice)
    tokens: Sequence[int]
    start: int  # position of tokens[0]; KV of all positions before it is already in the blocks
    block_table: Sequence[int]  # block i holds positions i * block_size ...
    slot: int  # adapter slot, BASE_SLOT for none
    sample: SamplePlan | None = None  # None while the row has not reached its last known token
    prompt_logprobs: bool = (
        False  # also return log-probabilities of tokens[1:] (and the first's, if start > 0)
    )


@dataclass(frozen=True, slots=True)
class StepPlan:
    step: int
    rows: Sequence[Row]
    slot_epoch: int  # moves whenever any slot's content does; metadata caches key on it

    @property
    def num_tokens(self) -> int:
        return sum(len(row.tokens) for row in self.rows)


@dataclass(frozen=True, slots=True)
class RowResult:
    """For a row with `sample`: the token chosen (and its logprob when asked). `error` fails that sequence
    alone (a NaN in its logits, say)."""

    sequence: int
    token: int | None = None
    logprob: TokenLogprob | None = None
    prompt_logprobs: Sequence[TokenLogprob | None] = field(default=())
    error: str = ""


class Runner(Protocol):
    """Carries out plans. Called from the step thread only, so that it needs no locks."""

    def execute(self, plan: StepPlan) -> list[RowResult]:
        """Results for the rows with `sample` or `prompt_logprobs`, in row order."""
        ...

    def install(self, slot: int, adapter: object) -> None:
        """Put a loaded adapter (`LoadedAdapter.handle`) into a slot no running row uses."""
        ...

    def clear(self, slot: int) -> None:
        """Empty a slot, so that stale weights can't be read."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """What a loader brings: an opaque handle that only the runner understands."""

    handle: object
    num_bytes: int
    found_in: Tier  # DISK or STORE
    load_ms: float


class AdapterSource(Protocol):
    """Fetches adapters. Called from the loader threads, never from the step thread."""

    def load(self, adapter: AdapterRef) -> LoadedAdapter:
        """Raises `AdapterUnavailable` with a sentence for a person."""
        ...

    def forget(self, adapter: AdapterRef) -> None:
        """Drop it from the disk cache."""
        ...


class AdapterUnavailable(Exception):
    """The adapter can't be had: missing, corrupt, for another base, or the store doesn't answer."""
