"""The engine core's loop: take in → schedule → submit → wait → apply, all in one thread.

With a runner that takes two steps at a time, step n + 1 is scheduled and submitted while step n runs.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Protocol

from engine.core.adapter_loader import Loaders
from engine.core.adapter_pool import AdapterPool
from engine.core.arrivals import Arrivals
from engine.core.block_pool import BlockPool
from engine.core.core_state import CoreState
from engine.core.counting import Reporter, TokenCounters
from engine.core.ending import Endings
from engine.core.in_flight import InFlight
from engine.core.journal import Journal
from engine.core.limits import CHECK_EVERY_S, STATS_IDLE_S, STATS_WORKING_S, CoreConfig, ModelFacts
from engine.core.open_requests import OpenRequests
from engine.core.plan import Runner
from engine.core.protocol import Failed, FromCore, Outcome, Ready, ToCore
from engine.core.request import Finish
from engine.core.results import Results
from engine.core.scheduler import Scheduler
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
        self._tokens = TokenCounters()
        self._finish = Finish(model.eos_token_ids, model.max_model_len)
        core = CoreState(
            config=config,
            model=model,
            clock=clock,
            journal=parts.journal,
            blocks=self._blocks,
            adapters=self._adapters,
            scheduler=self._scheduler,
            endings=Endings(parts.journal, clock),
            tokens=self._tokens,
            finish=self._finish,
        )
        self._open = OpenRequests(core)
        self._arrivals = Arrivals(core, self._open)
        self._in_flight = InFlight(parts.runner, self._scheduler, self._finish, clock)
        self._reporter = Reporter(self._blocks, self._scheduler, self._adapters, self._in_flight.figures)
        self._results = Results(core, self._open, self._in_flight)
        self._stats_at = float("-inf")
        self._checked = True  # integrity, since the last request ended
        self._checked_at = float("-inf")

    # The process

    def run_forever(self) -> int:
        """Serves until drained (returns 0), or until the core or its server fails (returns 1)."""
        try:
            self.announce()
            self._serve()
        except PeerGone as gone:
            log.warning("the engine core stops: %s", gone)
            self._end_all(Outcome.CORE_FAILED, str(gone))
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
        while not self._arrivals.draining or len(self._in_flight):
            is_busy = self.step()
            if not is_busy and not self._arrivals.draining:
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
        """One turn: schedules and submits a step, and applies the results of the one before it (of itself,
        where the runner takes one step at a time). Returns whether there was anything to do; if not, there is
        nothing to do until a frame or a load arrives, or a deadline passes."""
        began, blocked_s = self._clock(), self._in_flight.blocked_s
        for frame in self._transport.recv_all():
            self._arrivals.take(frame)
        self._arrivals.take_loads()
        self._open.expire()
        self._checked = self._checked and not self._open
        chunks = self._scheduler.schedule(self._clock())
        if chunks:
            self._in_flight.submit(chunks, self._adapters.slot_epoch)
        is_busy = len(self._in_flight) > 0
        if self._in_flight.is_full or (is_busy and not chunks):
            self._results.apply(*self._in_flight.wait())
        self._report()
        if is_busy:
            blocked_s = self._in_flight.blocked_s - blocked_s
            self._in_flight.figures.note_turn(self._clock() - began - blocked_s)
        return is_busy

    # The end

    def _end_all(self, outcome: Outcome, reason: str) -> None:
        self._open.close_all(outcome, reason)
        self._checked = False

    def _fail(self, reason: str) -> None:
        """Journals what is open, as far as the journal still works, and tells the server: of those that have
        ended before, too."""
        try:
            self._end_all(Outcome.CORE_FAILED, reason)
        except Exception:
            log.exception("open requests could not be journalled")
        try:
            self._transport.send([*self._open.take_outbox(), Failed(reason)])
        except PeerGone:
            log.warning("the server is gone too")

    # Report

    def _report(self) -> None:
        outbox = self._open.outbox
        outbox.extend(self._adapters.take_events())
        now = self._clock()
        if now - self._stats_at >= self._stats_every_s:
            self._stats_at = now
            outbox.append(self._reporter.stats(self._in_flight.num_submitted, self._tokens, now))
        self._transport.send(self._open.take_outbox())
        if not self._open and not self._checked and now - self._checked_at >= CHECK_EVERY_S:
            self.check()
            self._checked, self._checked_at = True, now

    @property
    def _stats_every_s(self) -> float:
        return STATS_WORKING_S if self._open else STATS_IDLE_S

    def _idle_s(self) -> float:
        """How long to wait when nothing can be computed: until the next stats, deadline, end or load."""
        now = self._clock()
        until = self._stats_at + self._stats_every_s
        limit = self._open.next_limit()
        load_s = self._adapters.next_load_s(now)  # one that its owner's rate holds back
        limits = [until, *([] if limit is None else [limit]), *([] if load_s is None else [now + load_s])]
        return max(0.0, min(limits) - now)

    def check(self) -> None:
        """Asserts that blocks, slots and users add up."""
        self._blocks.check(self._scheduler.tables())
        users = Counter(r.artefact for r in self._open if r.artefact is not None)
        self._adapters.check(self._scheduler.pins(), users)
