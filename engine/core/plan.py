"""What one step computes, as plain data, and the seam to whatever computes it.

`engine/core` makes plans and never sees a tensor; `engine/model/runner.py` carries them out. A trace of plans
replays to the same bits, and is what tensor-parallel ranks will receive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from engine.core.protocol import AdapterRef, Sampling, Tier, TokenLogprob

BASE_SLOT: Final = -1
PENDING_TOKEN: Final = -1
"""In a row: the token that the step submitted before this one samples for the row's sequence. The host
doesn't know it yet; the runner takes it from the device's memory. Such a row has one token, no `banned`, no
penalties and no `prompt_logprobs`."""


@dataclass(frozen=True, slots=True)
class SamplePlan:
    """Ask for the next token after a row. `prompt` and `generated` (this choice's tokens so far) feed the
    penalties. The draw is a pure function of (seed, choice, counter)."""

    sampling: Sampling
    choice: int
    prompt: Sequence[int]
    generated: Sequence[int]
    banned: tuple[int, ...] = ()  # token ids that can't be chosen now (min_tokens)
    unlisted: int = 0  # tokens that come after `generated`: not known yet, or (in a trace) of no effect

    @property
    def counter(self) -> int:
        """Which token of its choice this is; the first is 0."""
        return len(self.generated) + self.unlisted


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

    @property
    def positions(self) -> range:
        return range(self.start, self.start + len(self.tokens))


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


class PendingStep(Protocol):
    """A step that was submitted."""

    def wait(self) -> list[RowResult]:
        """Results for the rows with `sample` or `prompt_logprobs`, in row order, once the step has run.
        Called once, in order of submission."""
        ...


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """The step of a runner that computes while it submits."""

    results: list[RowResult]

    def wait(self) -> list[RowResult]:
        return self.results


class Runner(Protocol):
    """Carries out plans, in order of submission. Called from the step thread only, so that it needs no
    locks."""

    @property
    def max_in_flight(self) -> int:
        """Steps that may be submitted before the first of them is waited for: 1, or 2 where the host plans
        the next step while the device runs this one."""
        ...

    def submit(self, plan: StepPlan) -> PendingStep:
        """Start a step. The plan's lists belong to the core and change later: whatever is needed of them is
        read before this returns. Blocks may be written again by a later step, which runs later; slots aren't
        touched before `wait` has returned."""
        ...

    def install(self, slot: int, adapter: object) -> None:
        """Put a loaded adapter (`LoadedAdapter.handle`) into a slot that no submitted step uses."""
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
    device_bytes: int = 0
    """What it takes of the device's budget while it has a slot, in whole pages of the device's memory; 0
    where a slot only points to host memory."""


class AdapterSource(Protocol):
    """Fetches adapters. Called from the loader threads, never from the step thread."""

    def is_near(self, adapter: AdapterRef) -> bool:
        """Whether it seems to be on this machine's disk. Answers from memory; the step thread may ask."""
        ...

    def load(self, adapter: AdapterRef, *, fetch: bool) -> LoadedAdapter:
        """Raises `AdapterUnavailable` with a sentence for a person; without `fetch` never asks the store, and
        raises `NotNear` if only the store could have it."""
        ...

    def forget(self, adapter: AdapterRef) -> None:
        """Drop it from the disk cache."""
        ...


class AdapterUnavailable(Exception):
    """The adapter can't be had: missing, corrupt, for another base, or the store doesn't answer. `is_fault`:
    it is the adapter that can't be served here, whatever the store says and whenever it is asked."""

    def __init__(self, message: str, *, is_fault: bool = False) -> None:
        super().__init__(message)
        self.is_fault = is_fault


class NotNear(Exception):
    """The adapter is not on this machine's disk, or its file there is damaged."""
