"""Steps that were submitted and whose results have not been applied.

| a sequence's | moves when its row is | is then |
|---|---|---|
| `computed`, `num_in_flight` | submitted | the next row's start; a row more |
| `num_pending` | submitted, if it samples | one more, until the token is known |
| `generated`, counts, frames, names of blocks | applied | what really stands |
| blocks | released as soon as it stops | written by others in later steps only |
| slot | applied, if it has stopped | free for another adapter |

A sequence that turns out to have ended has its rows in later steps discarded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from engine.core.plan import BASE_SLOT, PendingStep, Row, RowResult, Runner, StepPlan
from engine.core.request import Finish, Sequence
from engine.core.rows import plan_row
from engine.core.scheduler import Chunk, Scheduler
from engine.core.step_cost import StepLoad
from engine.core.step_figures import StepFigures


@dataclass(frozen=True, slots=True)
class SubmittedRow:
    """A row of a submitted step, as far as its results need it: the plan's lists may have changed since."""

    sequence: Sequence
    stop: int  # tokens of the sequence whose KV is there once it has run
    num_tokens: int
    samples: bool
    prompt_logprobs: bool


@dataclass(frozen=True, slots=True)
class SubmittedStep:
    rows: list[SubmittedRow]
    load: StepLoad
    submitted: float
    pending: PendingStep
    num_adapters: int


class InFlight:
    """The only caller of the runner's `submit` and of the steps' `wait`."""

    def __init__(
        self, runner: Runner, scheduler: Scheduler, finish: Finish, clock: Callable[[], float]
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._finish = finish
        self._clock = clock
        self._steps: deque[SubmittedStep] = deque()
        self._ended = float("-inf")  # when the step before the oldest one had run
        self.num_submitted = 0  # over the life of the process
        self.blocked_s = 0.0  # in the runner's calls, over the life of the process
        self.figures = StepFigures()

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def is_full(self) -> bool:
        """Whether the oldest step must be waited for before another is submitted."""
        return len(self._steps) >= self._runner.max_in_flight

    def submit(self, chunks: list[Chunk], slot_epoch: int) -> None:
        assert not self.is_full
        self.num_submitted += 1
        rows = [plan_row(chunk, self._finish) for chunk in chunks]
        load, now = self._scheduler.planned, self._clock()
        step = self._runner.submit(StepPlan(step=self.num_submitted, rows=rows, slot_epoch=slot_epoch))
        self.blocked_s += self._clock() - now
        num_adapters = len({row.slot for row in rows} - {BASE_SLOT})
        submitted = [self._note(chunk.sequence, row) for chunk, row in zip(chunks, rows, strict=True)]
        self._steps.append(SubmittedStep(submitted, load, now, step, num_adapters))

    def wait(self) -> tuple[list[SubmittedRow], list[RowResult]]:
        """The rows of the oldest step, and its results. Each row is given to `settle` when it is applied."""
        step, now = self._steps.popleft(), self._clock()
        results = step.pending.wait()
        began, self._ended = max(step.submitted, self._ended), self._clock()
        self.blocked_s += self._ended - now
        run_s = self._ended - began
        num_tokens = sum(row.num_tokens for row in step.rows)
        self._scheduler.observe(step.load, run_s)
        self.figures.note_step(
            rows=len(step.rows), tokens=num_tokens, adapters=step.num_adapters, run_s=run_s
        )
        for row in step.rows:
            if row.sequence.yields:
                row.sequence.request.run_ms += 1000 * run_s * row.num_tokens / num_tokens
        return step.rows, results

    def settle(self, row: SubmittedRow) -> None:
        """The row has run: what was counted as under way no longer is."""
        sequence = row.sequence
        sequence.num_pending -= row.samples
        self._scheduler.note_applied(sequence)

    def _note(self, sequence: Sequence, row: Row) -> SubmittedRow:
        samples = row.sample is not None
        sequence.computed += len(row.tokens)
        sequence.num_in_flight += 1
        sequence.num_pending += samples
        sequence.runs_ahead = self._runner.max_in_flight > 1 and self._finish.may_run_ahead(sequence)
        return SubmittedRow(sequence, sequence.computed, len(row.tokens), samples, row.prompt_logprobs)
