"""The end of an attempt: its one terminal frame, after its one journal line."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from engine.core.journal import Journal, JournalFull, JournalLine, now_utc
from engine.core.protocol import Ended, Outcome, Tier, Usage
from engine.core.request import Request

log = logging.getLogger(__name__)

UNRECORDED = "The replica can't record usage now."


class Endings:
    """Fixes outcomes and writes them down."""

    def __init__(self, journal: Journal, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._clock = clock

    def end(self, request: Request, outcome: Outcome, reason: str) -> Ended:
        """Ends a request that holds nothing any more. The frame may be sent: its line is written, or else it
        says that the request failed and counts nothing. Raises `JournalError` when no line can be written any
        more."""
        request.end(outcome, reason)
        ended = Ended(
            request=request.add.request,
            attempt=request.add.attempt,
            outcome=outcome,
            usage=request.usage,
            timings=request.timings(self._clock()),
            tier=request.tier or Tier.STORE,
            reason=reason,
            not_finite=request.not_finite,
            run_ms=round(request.run_ms, 3),
        )
        try:
            self._journal.append(self._line(request, ended))
        except JournalFull as error:
            log.critical("request %s attempt %d is not recorded: %s", *request.name, error)
            return msgspec.structs.replace(
                ended, outcome=Outcome.CORE_FAILED, usage=Usage(0, 0, 0), reason=UNRECORDED
            )
        return ended

    def _line(self, request: Request, ended: Ended) -> JournalLine:
        add, usage, timings = request.add, ended.usage, ended.timings
        return JournalLine(
            n=self._journal.last_n + 1,
            request=add.request,
            attempt=add.attempt,
            tenant=add.tenant,
            key=add.key,
            artefact=None if add.adapter is None else add.adapter.artefact,
            owner=None if add.adapter is None else add.adapter.owner,
            version=add.version,
            purpose=add.purpose,
            outcome=ended.outcome,
            prompt=usage.prompt,
            completion=usage.completion,
            cached=usage.cached,
            queue_ms=timings.queue_ms,
            load_ms=timings.load_ms,
            ttft_ms=timings.ttft_ms,
            total_ms=timings.total_ms,
            tier=ended.tier,
            ended_at=now_utc(),
            service_class=add.service_class,
        )
