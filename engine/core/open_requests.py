"""The requests that are open, and the one place where a request ends."""

from __future__ import annotations

from collections.abc import Iterator

from engine.core.core_state import CoreState
from engine.core.protocol import AdapterRef, FromCore, Outcome
from engine.core.request import Request, State


class OpenRequests:
    """Holds every accepted request from its frame to its end, by (request, attempt), and what the server is
    to be told (`outbox`)."""

    def __init__(self, core: CoreState) -> None:
        self._core = core
        self._requests: dict[tuple[str, int], Request] = {}
        self.outbox: list[FromCore] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """In order of arrival; requests may be closed meanwhile."""
        return iter(list(self._requests.values()))

    def get(self, request: str, attempt: int) -> Request | None:
        return self._requests.get((request, attempt))

    def enter(self, request: Request, adapter: AdapterRef | None, now: float) -> None:
        """From here on it may run, and `close` must be called once."""
        self._requests[request.name] = request
        if adapter is not None:
            request.tier = self._core.adapters.enter(adapter, now, yields=request.add.yields)
        self._core.scheduler.add(request)

    def close_if_done(self, request: Request) -> None:
        """Ends a request all of whose choices have ended, once the server has confirmed their counts."""
        if any(sequence.state is not State.FINISHED for sequence in request.sequences):
            return
        if all(sequence.confirmed for sequence in request.sequences):
            self.close(request, Outcome.FINISHED)
        elif request.confirm_by is None:
            request.confirm_by = self._core.clock() + self._core.config.confirm_timeout_s

    def close(self, request: Request, outcome: Outcome, reason: str = "") -> None:
        """The one place where a request ends: everything freed, its line written, its terminal frame queued.
        One that never entered only gets the last two."""
        if self._requests.pop(request.name, None) is not None:
            for sequence in request.sequences:
                self._core.scheduler.remove(sequence)
            if request.artefact is not None:
                self._core.adapters.leave(request.artefact, yields=request.add.yields)
        self.outbox.append(self._core.endings.end(request, outcome, reason))

    def close_all(self, outcome: Outcome, reason: str) -> None:
        for request in self:
            self.close(request, outcome, reason)

    def expire(self) -> None:
        """Ends those whose deadline passed before their first token, or whose count nobody confirms."""
        now = self._core.clock()
        for request in self:
            if request.confirm_by is not None and now >= request.confirm_by:
                self.close(request, Outcome.FINISHED)
            elif request.first_token is None and request.deadline is not None and now >= request.deadline:
                self.close(request, Outcome.EXPIRED, "The deadline passed before the first token.")

    def next_limit(self) -> float | None:
        """When `expire` next has something to do, by the clock."""
        limits = [
            limit
            for request in self._requests.values()
            for limit in (request.confirm_by, request.deadline if request.first_token is None else None)
            if limit is not None
        ]
        return min(limits, default=None)

    def take_outbox(self) -> list[FromCore]:
        frames, self.outbox = self.outbox, []
        return frames
