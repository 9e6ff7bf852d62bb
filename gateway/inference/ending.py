"""The end of a request: metered and settled, each exactly once, whatever happens to the task that walks it.

    normal end      journal append ‖ settle-and-release, then the caller sends the terminal bytes
    client left     abort at the engine, which answers with its count; then the same, and nothing is sent
    replica failed  the engine is asked for its count too; the row bills nothing

`finish` runs in a task of its own, so that cancelling the walk can't skip it, and a second call joins the
first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar

import msgspec
import structlog

from gateway.events.trace import Step
from gateway.inference import metrics
from gateway.inference.call import Attempt, Call, Trip
from gateway.limits.amounts import NOTHING, Used
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import Reservation
from gateway.receipts.issuer import Issuer
from gateway.replicas.driver import Trailer, UpstreamFailed
from gateway.replicas.metrics import ABORTS
from gateway.usage.event import BILLED_OUTCOMES, UsageEvent
from gateway.usage.journal import Journal, JournalFailed

log = structlog.get_logger(__name__)

NOT_FINITE = "not_finite"
"""An engine's outcome that blames the adapter: it stands in the row, whoever was asked after it."""
ABORT_TRIES = 3
ABORT_PAUSE_S = 0.2

T = TypeVar("T")

_background: set[asyncio.Task[Any]] = set()


class Cause(Enum):
    """Why the request ends."""

    COMPLETE = "complete"  # the engine ended it
    CLIENT_LEFT = "client_left"
    FAILED = "failed"  # a replica or we ourselves broke it off


class Record(msgspec.Struct, frozen=True):
    """What one attempt came to. `trailer` None with `known` False: the replica can't say."""

    trailer: Trailer | None
    known: bool
    cause: Cause
    free: bool = False  # another attempt of the request is billed

    @property
    def outcome(self) -> str:
        if self.cause is Cause.FAILED:
            return NOT_FINITE if self.trailer is not None and self.trailer.outcome == NOT_FINITE else "failed"
        if self.trailer is not None:
            return self.trailer.outcome
        return "aborted" if self.cause is Cause.CLIENT_LEFT else "failed"

    @property
    def reached_core(self) -> bool:
        return self.trailer is not None or not self.known

    @property
    def billed(self) -> bool:
        return self.trailer is not None and self.outcome in BILLED_OUTCOMES and not self.free


class Ending:
    """One per request. `reservation` is None for the gateway's own probes, which no limit holds."""

    def __init__(
        self,
        trip: Trip,
        reservation: Reservation | None,
        limiter: Limiter,
        journal: Journal,
        receipts: Issuer,
    ) -> None:
        self._trip = trip
        self._reservation = reservation
        self._limiter = limiter
        self._journal = journal
        self._receipts = receipts
        self._task: asyncio.Task[Record | None] | None = None
        self.event: UsageEvent | None = None  # the line of the last attempt, once it is durable

    async def finish(self, cause: Cause) -> Record | None:
        """Ends the request; gives what its last attempt came to, None if none was at a replica.

        Raises `JournalFailed`: nothing may then look finished to the client.
        """
        if self._task is None:
            self._task = _keep(asyncio.create_task(self._finish(cause), name="request-ending"))
        return await outlast(self._task)

    async def lose(self, error: UpstreamFailed) -> None:
        """Ends an attempt that failed before its first byte; the request goes on. Raises `JournalFailed`."""
        attempt, self._trip.attempt = self._trip.attempt, None
        assert attempt is not None
        if error.blames:
            attempt.load.fail()
        else:
            attempt.load.dismiss()
        if error.sent:
            await outlast(_keep(asyncio.create_task(self._lose(attempt), name="attempt-ending")))
        else:
            await attempt.close()

    async def _lose(self, attempt: Attempt) -> None:
        record = await self._record(attempt, Cause.FAILED)
        await attempt.close()
        if record.reached_core:
            await self._append(attempt, record)

    async def _finish(self, cause: Cause) -> Record | None:
        trip = self._trip
        trip.trace.enter(Step.END)
        attempt = trip.attempt
        record = None if attempt is None else await self._record(attempt, cause)
        record = await self._for_retries(record)
        trip.used = _used(trip.call, record)
        try:
            if attempt is not None and record is not None and record.reached_core:
                await self._write_down(attempt, record)
            else:
                await self._settle()
        except JournalFailed:
            if trip.keeping is not None:
                await trip.keeping.retract()
            raise
        finally:
            trip.leave_place()
            if attempt is not None:
                _judge(attempt, cause, record)
                await attempt.close()
        metrics.observe_end(trip.call, record)
        return record

    async def _for_retries(self, record: Record | None) -> Record | None:
        """What they will find is settled before the row is written (`gateway/idempotency/service.py`)."""
        keeping = self._trip.keeping
        if keeping is None:
            return record
        whole = record is not None and record.cause is Cause.COMPLETE and record.outcome == "finished"
        bills = await keeping.settle(record.trailer if record is not None and whole else None)
        return record if bills or record is None else msgspec.structs.replace(record, free=True)

    async def _write_down(self, attempt: Attempt, record: Record) -> None:
        settled = asyncio.create_task(self._settle(), name="request-settling")
        try:
            self.event = await self._append(attempt, record)
        finally:
            await settled

    async def _append(self, attempt: Attempt, record: Record) -> UsageEvent:
        """Raises `JournalFailed`; the client is then told of a failure, so the attempt bills nothing."""
        event = self._receipts.price(usage_event(self._trip.call, attempt, record))
        try:
            await self._journal.append(event)
            self._trip.trace.metered = event
        except JournalFailed:
            failed = msgspec.structs.replace(record, cause=Cause.FAILED)
            self._journal.keep(usage_event(self._trip.call, attempt, failed))
            raise
        return event

    async def _settle(self) -> None:
        if self._reservation is not None:
            await self._limiter.settle(self._reservation, self._trip.used)

    async def _record(self, attempt: Attempt, cause: Cause) -> Record:
        if attempt.trailer is not None:
            return Record(attempt.trailer, True, cause)
        try:
            trailer = await self._abort(attempt)
        except UpstreamFailed as error:
            log.warning("abort_unanswered", request=str(self._trip.call.request_id), reason=str(error))
            ABORTS.labels("unanswered").inc()
            return Record(None, False, cause)
        ABORTS.labels("acknowledged" if trailer else "unknown").inc()
        return Record(trailer, True, cause)

    async def _abort(self, attempt: Attempt) -> Trailer | None:
        for left in reversed(range(ABORT_TRIES)):
            try:
                return await attempt.replica.driver.abort(str(self._trip.call.request_id), attempt.number)
            except UpstreamFailed:
                if not left:
                    raise
                await asyncio.sleep(ABORT_PAUSE_S)
        raise AssertionError("unreachable: the last try returns or raises")


async def outlast(task: asyncio.Task[T]) -> T:
    """The task's result, awaited to its end even when the caller is cancelled (which is raised after
    that)."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            cancelled = error
        except Exception:  # noqa: S110  task.result() below raises it
            pass
    if cancelled is not None:
        task.exception()  # retrieved: the cancellation is what is raised
        raise cancelled
    return task.result()


def _keep(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """The event loop holds tasks weakly."""
    _background.add(task)
    task.add_done_callback(_background.discard)
    return task


def in_background(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that closing a worker waits for."""
    return _keep(asyncio.create_task(work))


async def drained() -> None:
    """Waits for all endings that still run; part of closing a worker."""
    while _background:
        await asyncio.wait(set(_background))


def _judge(attempt: Attempt, cause: Cause, record: Record | None) -> None:
    """What this end says about the replica."""
    if cause is Cause.FAILED:
        attempt.load.fail()
    elif record is not None and record.outcome == "finished":
        attempt.load.succeed()
    else:
        attempt.load.dismiss()


def _used(call: Call, record: Record | None) -> Used:
    """What the limits keep: what is billed; all that was reserved when nobody can say."""
    if record is None or (record.known and not record.billed):
        return NOTHING
    if record.trailer is None:
        most = call.tokens
        return Used(most.input, most.output) if record.cause is Cause.CLIENT_LEFT else NOTHING
    usage = record.trailer.usage
    return Used(usage.prompt, usage.completion, usage.cached) if record.billed else NOTHING


def usage_event(call: Call, attempt: Attempt, record: Record) -> UsageEvent:
    """The attempt's line for the journal."""
    adapter = call.resolved.adapter
    trailer = record.trailer
    usage = trailer.usage if trailer else None
    billed = usage if record.billed and call.purpose == "tenant" else None
    timings = trailer.timings if trailer else None
    return UsageEvent(
        request_id=call.request_id,
        attempt=attempt.number,
        tenant_id=call.principal.tenant,
        key_id=call.principal.key_id,
        base_id=call.resolved.base_id,
        outcome=record.outcome,
        created_at=call.arrived_at,
        ended_at=datetime.now(UTC),
        purpose=call.purpose,
        adapter_name=adapter.name if adapter else None,
        adapter_version=adapter.version if adapter else None,
        artefact=adapter.artefact if adapter else None,
        owner_id=adapter.owner if adapter else None,
        prompt_tokens=usage.prompt if usage else 0,
        completion_tokens=usage.completion if usage else 0,
        cached_tokens=usage.cached if usage else 0,
        billed_prompt_tokens=billed.prompt if billed else 0,
        billed_completion_tokens=billed.completion if billed else 0,
        billed_cached_tokens=billed.cached if billed else 0,
        queue_ms=_whole(timings.queue_ms) if timings else None,
        load_ms=_whole(timings.load_ms) if timings else None,
        ttft_ms=_whole(timings.ttft_ms) if timings else None,
        total_ms=_whole(timings.total_ms) if timings else None,
        tier=trailer.tier if trailer else None,
        service_class=call.principal.service_class,
        replica=attempt.replica.url,
        client_request_id=call.client_request_id,
        counted=trailer is not None,
    )


def _whole(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds)
