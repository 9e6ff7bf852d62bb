"""The engine core's loop: drain → schedule → run → apply, one thread, one step after the other."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Protocol

from engine.core.adapter_loader import LoadDone, Loaders
from engine.core.adapter_pool import AdapterPool
from engine.core.block_pool import BlockPool
from engine.core.counting import Reporter, TokenCounters
from engine.core.ending import UNRECORDED, Endings
from engine.core.intake import Intake
from engine.core.journal import Journal
from engine.core.limits import STATS_IDLE_S, STATS_WORKING_S, CoreConfig, ModelFacts
from engine.core.plan import RowResult, Runner, StepPlan
from engine.core.protocol import (
    Abort,
    AddRequest,
    Drain,
    Failed,
    FromCore,
    Outcome,
    Prefetch,
    Ready,
    Retire,
    StopChoice,
    Tier,
    ToCore,
    Tokens,
)
from engine.core.request import Finish, Request, Sequence, State
from engine.core.rows import keep_prompt_logprobs, plan_row
from engine.core.scheduler import Chunk, Scheduler
from engine.core.transport import PeerGone

log = logging.getLogger(__name__)


class Transport(Protocol):
    """The core's end of the socket (`engine.core.transport.CoreTransport`)."""

    def recv_all(self) -> list[ToCore]: ...

    def wait(self, timeout_s: float) -> None: ...

    def send(self, frames: Items[FromCore]) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a loop works with; whoever builds them closes them (`Loop.close` does for the loaders)."""

    runner: Runner
    loaders: Loaders
    transport: Transport
    journal: Journal


class Loop:
    """One core. `step` can be called by hand; `run_forever` is what a process does."""

    def __init__(
        self, config: CoreConfig, model: ModelFacts, parts: Parts, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._model = model
        self._runner = parts.runner
        self._transport = parts.transport
        self._journal = parts.journal
        self._clock = clock
        self._blocks = BlockPool(config.num_blocks)
        self._adapters = AdapterPool(config, parts.runner, parts.loaders)
        self._scheduler = Scheduler(config, self._blocks, self._adapters)
        self._intake = Intake(config, model)
        self._reporter = Reporter(self._blocks, self._scheduler, self._adapters)
        self._endings = Endings(parts.journal, clock)
        self._tokens = TokenCounters()
        self._finish = Finish(model.eos_token_ids, model.max_model_len)
        self._open: dict[tuple[str, int], Request] = {}
        self._outbox: list[FromCore] = []
        self._next_number = 0
        self._steps = 0
        self._stats_at = float("-inf")
        self._checked = True  # integrity, since the last request ended
        self._draining = False

    # The process

    def run_forever(self) -> int:
        """Serves until drained (returns 0), or until the core or its server fails (returns 1)."""
        try:
            self.announce()
            self._serve()
        except PeerGone as gone:
            log.warning("the engine core stops: %s", gone)
            self._end_all(Outcome.ABORTED, str(gone))
            return 1
        except Exception as error:
            log.exception("the engine core failed")
            self._fail(f"The engine core failed: {type(error).__name__}: {error}")
            return 1
        else:
            return 0
        finally:
            self._adapters.close()

    def _serve(self) -> None:
        while not self._draining:
            is_busy = self.step()
            if not is_busy and not self._draining:
                self._transport.wait(self._idle_s())

    def announce(self) -> None:
        """Tells the server what this core is."""
        self._transport.send(
            [
                Ready(
                    base_id=self._model.base_id,
                    base_digest=self._model.base_digest,
                    max_model_len=self._model.max_model_len,
                    vocab_size=self._model.vocab_size,
                    eos_token_ids=list(self._model.eos_token_ids),
                    num_blocks=self._config.num_blocks,
                    block_size=self._config.block_size,
                    num_slots=self._config.num_slots,
                    max_running=self._config.max_running,
                    journal_id=self._journal.journal_id,
                )
            ]
        )

    def step(self) -> bool:
        """One turn. Returns whether anything was computed; if not, there is nothing to do until a frame or a
        load arrives, or a deadline passes."""
        self._drain_frames()
        self._take_loads()
        self._expire()
        chunks = self._scheduler.schedule(self._clock())
        if chunks:
            results = self._runner.execute(self._plan(chunks))
            self._apply(chunks, results)
        self._report()
        return bool(chunks)

    # Drain

    def _drain_frames(self) -> None:
        for frame in self._transport.recv_all():
            match frame:
                case AddRequest():
                    self._add(frame)
                case Abort():
                    self._abort(frame)
                case StopChoice():
                    self._stop_choice(frame)
                case Prefetch():
                    self._adapters.prefetch(frame.adapter, self._clock())
                case Retire():
                    self._adapters.retire(frame.adapter)
                case Drain():
                    self._end_all(Outcome.ABORTED, "The engine is shutting down.")
                    self._draining = True
                case _:
                    raise AssertionError(f"no such frame: {frame!r}")

    def _add(self, add: AddRequest) -> None:
        if (add.request, add.attempt) in self._open:
            log.error("request %s attempt %d came twice; the second is dropped", add.request, add.attempt)
            return
        now = self._clock()
        request = Request(add, self._model.base_digest, self._next_number, now)
        self._next_number += add.num_choices
        if reason := self._intake.refusal(add, len(self._open)):
            self._close(request, Outcome.REFUSED, reason)
            return
        if self._journal.is_full:
            self._close(request, Outcome.CORE_FAILED, UNRECORDED)
            return
        if request.artefact is not None and (reason := self._adapters.failure(request.artefact, now)):
            self._close(request, Outcome.ADAPTER_FAILED, reason)
            return
        self._open[request.name] = request
        self._checked = False
        if add.adapter is not None:
            request.tier = self._adapters.enter(add.adapter, now)
        self._scheduler.add(request)

    def _abort(self, frame: Abort) -> None:
        request = self._open.get((frame.request, frame.attempt))
        if request is not None:  # else its Ended crossed this frame
            self._close(request, Outcome.ABORTED, "The request was aborted.")

    def _stop_choice(self, frame: StopChoice) -> None:
        request = self._open.get((frame.request, frame.attempt))
        if request is None or not 0 <= frame.choice < len(request.sequences):
            return  # its Ended crossed this frame
        sequence = request.sequences[frame.choice]
        self._tokens.count_generated(-len(sequence.generated[frame.num_tokens :]))
        del sequence.generated[frame.num_tokens :]
        sequence.confirmed = True
        if sequence.state is not State.FINISHED:
            self._scheduler.remove(sequence)
        self._close_if_done(request)

    def _take_loads(self) -> None:
        for done in self._adapters.poll(self._clock()):
            waiting = [r for r in self._open.values() if r.artefact == done.adapter.artefact]
            for request in waiting:
                self._take_load(request, done)

    def _take_load(self, request: Request, done: LoadDone) -> None:
        if request.tier is None:
            request.load_ms = (self._clock() - request.arrived) * 1000
            request.tier = Tier.STORE if done.loaded is None else done.loaded.found_in
        if done.loaded is None:
            self._close(request, Outcome.ADAPTER_FAILED, done.error)

    def _expire(self) -> None:
        now = self._clock()
        for request in list(self._open.values()):
            if request.confirm_by is not None and now >= request.confirm_by:
                self._close(request, Outcome.FINISHED)
            elif request.first_token is None and request.deadline is not None and now >= request.deadline:
                self._close(request, Outcome.EXPIRED, "The deadline passed before the first token.")

    # Run

    def _plan(self, chunks: list[Chunk]) -> StepPlan:
        self._steps += 1
        rows = [plan_row(chunk, self._finish) for chunk in chunks]
        return StepPlan(step=self._steps, rows=rows, slot_epoch=self._adapters.slot_epoch)

    # Apply

    def _apply(self, chunks: list[Chunk], results: list[RowResult]) -> None:
        by_sequence = {result.sequence: result for result in results}
        for chunk in chunks:
            sequence = chunk.sequence
            if sequence.state is not State.RUNNING:
                continue  # its request failed earlier in this step
            result = by_sequence.get(sequence.number)
            if result is not None and result.error:
                self._fail_row(sequence.request, result.error)
                continue
            self._advance(chunk, result)

    def _fail_row(self, request: Request, error: str) -> None:
        """A row failed alone. With an adapter it is the adapter's doing (values that overflow pass the checks
        of an upload), and must not count against this replica."""
        if request.artefact is None:
            self._close(request, Outcome.CORE_FAILED, error)
        else:
            self._close(request, Outcome.ADAPTER_FAILED, f"The adapter can't be computed: {error}.")

    def _advance(self, chunk: Chunk, result: RowResult | None) -> None:
        sequence, samples = chunk.sequence, chunk.samples
        start = sequence.computed
        if sequence.owes_prompt_logprobs:
            assert result is not None, "the runner answers each row that asks"
            keep_prompt_logprobs(sequence.request, start, chunk.num_tokens, result)
        sequence.computed += chunk.num_tokens
        self._scheduler.publish(sequence)
        self._tokens.count_prompt(sequence)
        if sequence.is_prompt_computed:
            sequence.request.prompt_computed = True
        if samples:
            assert result is not None, "the runner answers each row that samples"
            self._take_token(sequence, result)

    def _take_token(self, sequence: Sequence, result: RowResult) -> None:
        assert result.token is not None, "a row that samples has a token or an error"
        request = sequence.request
        is_first = sequence.choice == 0 and not sequence.generated
        if request.first_token is None:
            request.first_token = self._clock()
        sequence.generated.append(result.token)
        self._tokens.count_generated(1)
        finish = self._finish.reason(sequence)
        ends = finish is not None and result.token in self._finish.end_tokens(sequence)
        self._outbox.append(
            Tokens(
                request=request.add.request,
                attempt=request.add.attempt,
                choice=sequence.choice,
                tokens=[result.token],
                logprobs=None if result.logprob is None else [result.logprob],
                finish=finish,
                stop_token=result.token if ends else None,
                prompt_logprobs=request.prompt_logprobs if is_first else None,
            )
        )
        if finish is not None:
            self._scheduler.remove(sequence)
            self._close_if_done(request)

    # The end of a request

    def _close_if_done(self, request: Request) -> None:
        if any(sequence.state is not State.FINISHED for sequence in request.sequences):
            return
        if all(sequence.confirmed for sequence in request.sequences):
            self._close(request, Outcome.FINISHED)
        elif request.confirm_by is None:
            request.confirm_by = self._clock() + self._config.confirm_timeout_s

    def _close(self, request: Request, outcome: Outcome, reason: str = "") -> None:
        """The one place where a request ends: everything freed, its line written, its terminal frame
        queued."""
        if self._open.pop(request.name, None) is not None:
            for sequence in request.sequences:
                self._scheduler.remove(sequence)
            if request.artefact is not None:
                self._adapters.leave(request.artefact)
        self._outbox.append(self._endings.end(request, outcome, reason))

    def _end_all(self, outcome: Outcome, reason: str) -> None:
        for request in list(self._open.values()):
            self._close(request, outcome, reason)
        self._checked = False

    def _fail(self, reason: str) -> None:
        """Journals what is open, as far as the journal still works, and tells the server."""
        frames: list[FromCore] = [Failed(reason)]
        try:
            self._end_all(Outcome.CORE_FAILED, reason)
            frames = [*self._outbox, *frames]
        except Exception:
            log.exception("open requests could not be journalled")
        try:
            self._transport.send(frames)
        except PeerGone:
            log.warning("the server is gone too")

    # Report

    def _report(self) -> None:
        self._outbox.extend(self._adapters.take_events())
        now = self._clock()
        if now - self._stats_at >= self._stats_every_s:
            self._stats_at = now
            self._outbox.append(self._reporter.stats(self._steps, self._tokens))
        frames, self._outbox = self._outbox, []
        self._transport.send(frames)
        if not self._open and not self._checked:
            self.check()
            self._checked = True

    @property
    def _stats_every_s(self) -> float:
        return STATS_WORKING_S if self._open else STATS_IDLE_S

    def _idle_s(self) -> float:
        """How long to wait when nothing can be computed: until the next stats, deadline or confirmation."""
        now = self._clock()
        until = self._stats_at + self._stats_every_s
        for request in self._open.values():
            for limit in (request.confirm_by, request.deadline if request.first_token is None else None):
                until = until if limit is None else min(until, limit)
        return max(0.0, until - now)

    def check(self) -> None:
        """Asserts that blocks, slots and users add up."""
        self._blocks.check(self._scheduler.tables())
        users = Counter(r.artefact for r in self._open.values() if r.artefact is not None)
        self._adapters.check(self._scheduler.pins(), users)
