"""What the server's frames and the ends of adapter loads do to the core."""

from __future__ import annotations

import logging
import math

from engine.core.adapter_loader import LoadDone
from engine.core.core_state import CoreState
from engine.core.ending import UNRECORDED
from engine.core.intake import Intake
from engine.core.open_requests import OpenRequests
from engine.core.protocol import (
    Abort,
    AddRequest,
    Drain,
    Look,
    Outcome,
    Prefetch,
    Retire,
    StopChoice,
    Tier,
    ToCore,
)
from engine.core.request import Request, State

log = logging.getLogger(__name__)

SHUTTING_DOWN = "The engine is shutting down."


class Arrivals:
    """Takes in frames, one by one, and loads. Belongs to the step thread."""

    def __init__(self, core: CoreState, open_requests: OpenRequests) -> None:
        self._core = core
        self._open = open_requests
        self._intake = Intake(core.config, core.model)
        self._next_number = 0
        self.draining = False

    def take(self, frame: ToCore) -> None:
        match frame:
            case AddRequest():
                self._add(frame)
            case Abort():
                self._abort(frame)
            case StopChoice():
                self._stop_choice(frame)
            case Prefetch():
                self._prefetch(frame)
            case Retire():
                self._core.adapters.retire(frame.adapter)
            case Look():
                self._open.outbox.append(self._core.adapters.residency(frame.artefact))
            case Drain():
                self._open.close_all(Outcome.CORE_FAILED, SHUTTING_DOWN)
                self.draining = True
            case _:
                raise AssertionError(f"no such frame: {frame!r}")

    def take_loads(self) -> None:
        """Starts loads, and tells the requests of those that have ended."""
        for done in self._core.adapters.poll(self._core.clock()):
            waiting = [request for request in self._open if request.artefact == done.adapter.artefact]
            if waiting and done.loaded is not None:  # whose tenant came first caused it
                self._core.scheduler.charge_load(waiting[0].add.tenant, done.loaded.num_bytes)
            for request in waiting:
                self._take_load(request, done)

    def _prefetch(self, hint: Prefetch) -> None:
        now = self._core.clock()
        due = math.inf if hint.within_ms is None else now + hint.within_ms / 1000
        self._core.adapters.prefetch(hint.adapter, now, due)
        if hint.keep_ms is not None:
            until = now + hint.keep_ms / 1000
            self._core.adapters.keep(hint.adapter, until, on_device=hint.on_device)

    def _add(self, add: AddRequest) -> None:
        if self._open.get(add.request, add.attempt) is not None:
            log.error("request %s attempt %d came twice; the second is dropped", add.request, add.attempt)
            return
        now = self._core.clock()
        request = Request(add, self._core.model.base_digest, self._next_number, now)
        self._next_number += len(request.sequences)
        if self.draining:
            self._open.close(request, Outcome.CORE_FAILED, SHUTTING_DOWN)
        elif reason := self._intake.refusal(add, len(self._open)):
            self._open.close(request, Outcome.REFUSED, reason)
        elif self._core.journal.is_full:
            self._open.close(request, Outcome.CORE_FAILED, UNRECORDED)
        elif request.artefact is not None and (reason := self._core.adapters.failure(request.artefact, now)):
            self._open.close(request, Outcome.ADAPTER_FAILED, reason)
        else:
            self._open.enter(request, add.adapter, now)

    def _abort(self, frame: Abort) -> None:
        request = self._open.get(frame.request, frame.attempt)
        if request is not None:  # else its Ended crossed this frame
            self._open.close(request, Outcome.ABORTED, "The request was aborted.")

    def _stop_choice(self, frame: StopChoice) -> None:
        request = self._open.get(frame.request, frame.attempt)
        if request is None or not 0 <= frame.choice < len(request.sequences):
            return  # its Ended crossed this frame
        sequence = request.sequences[frame.choice]
        self._core.tokens.count_generated(-len(sequence.generated[frame.num_tokens :]))
        del sequence.generated[frame.num_tokens :]
        sequence.confirmed = True
        if sequence.state is not State.FINISHED:
            self._core.scheduler.remove(sequence)
        self._open.close_if_done(request)

    def _take_load(self, request: Request, done: LoadDone) -> None:
        if request.tier is None:
            request.load_ms = (self._core.clock() - request.arrived) * 1000
            request.tier = Tier.STORE if done.loaded is None else done.loaded.found_in
        if done.loaded is None:
            self._open.close(request, Outcome.ADAPTER_FAILED, done.error)
