"""From the queue to the first byte: waits for a place, chooses a replica, tries again while nothing was
relayed.

A replica that is full (`replica_busy`) sends the request back to the queue; one that fails is left for
another, at most `max_attempts` times in all and within the worker's budget of retries. What the client did
wrong is answered at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

import structlog

from adapters.headers import TRAILER_HEADER
from gateway.errors import AnswerTooLong, Timeout, Unavailable, retry_headers
from gateway.events.trace import Step
from gateway.inference.call import Attempt, Call, Trip
from gateway.inference.ending import Ending
from gateway.inference.frames import read_trailer
from gateway.inference.upstream_error import Verdict, upstream_error, verdict_of
from gateway.inference.wanting import want_of
from gateway.queueing.fair_queue import Ask, FairQueue
from gateway.queueing.ticket import Ticket
from gateway.replicas.driver import Upstream, UpstreamFailed
from gateway.replicas.metrics import RETRIES
from gateway.replicas.registry import Registry
from gateway.replicas.replica import LOAD_TOKENS, Replica
from gateway.replicas.retry_budget import RetryBudget

log = structlog.get_logger(__name__)

MAX_ERROR_BYTES = 64 * 1024
MAX_UNARY_BYTES = 64 * 1024 * 1024
DEADLINE_SHARE = 0.95
"""Of the time that an attempt has: the engine gives up first, so that it says what it counted."""
LEAST_S = 0.05
SLOWEST_TOKEN_S = 1.0
"""What each token of an answer may take on average: slower than any replica in use."""
BUSY_PAUSE_S = (0.02, 0.1)
"""How long a request that a full replica turned away stays out of the queue; random, so that they don't
return at once."""


@dataclass(frozen=True, slots=True)
class Patience:
    """All in seconds, but `max_attempts`."""

    queue_wait_s: float
    first_byte_s: float
    idle_s: float
    max_attempts: int

    def first_token_s(self, waited_s: float) -> float:
        """How long an attempt may take to its first token, when its request arrived `waited_s` ago."""
        return max(LEAST_S, min(self.first_byte_s, self.queue_wait_s + self.first_byte_s - waited_s))

    def answer_s(self, call: Call) -> float:
        """How long the first byte of an answer may take. A stream's comes with its first token, a whole
        answer's after its last; the engine gives up what has no first token in time, whichever it is."""
        more_s = 0.0 if call.request.streaming else call.max_tokens * SLOWEST_TOKEN_S
        return self.first_byte_s + more_s


class Dispatcher:
    """One per worker."""

    def __init__(
        self, queue: FairQueue, registry: Registry, patience: Patience, budget: RetryBudget | None = None
    ) -> None:
        self._queue = queue
        self._registry = registry
        self._budget = budget or RetryBudget(share=0.1)
        self.patience = patience

    def aim(self, call: Call) -> None:
        """Tells it what the router needs of it; to be made again when its rights change."""
        call.want = want_of(call, self._registry.rules)

    def ticket(self, call: Call) -> Ticket:
        """For the request's place in its tenant's line: what it may use, and what its adapter's load will
        cost."""
        replica = self._registry.choose(call.want)
        return self._queue.ticket(
            call.principal.service_class,
            call.most_tokens,
            weight=call.principal.share_weight,
            load_tokens=_load_tokens(replica, call) if replica is not None else 0,
        )

    async def begin(self, trip: Trip, ending: Ending) -> Attempt:
        """An attempt whose first bytes are here (`Attempt.first`); `trip` shows at any time what must be
        ended.

        Raises `ApiError`, and `JournalFailed`.
        """
        deadline = time.monotonic() + self.patience.queue_wait_s
        if trip.call.deadline is not None:
            deadline = min(deadline, trip.call.deadline)
        again = False
        self._budget.deposit()
        while True:
            trip.trace.enter(Step.QUEUE)
            await self._enter(trip, deadline, again)
            trip.trace.enter(Step.FIRST_BYTE)
            try:
                return await self._try(trip)
            except UpstreamFailed as error:
                log.warning("attempt_failed", request=str(trip.call.request_id), reason=str(error))
                assert trip.attempt is not None
                failed = trip.attempt.replica
                trip.tried.append(failed)
                await ending.lose(error)
                if not self._may_try_again(trip, failed):
                    raise Unavailable(
                        "The model's replicas can't answer now.", code="replica_failed"
                    ) from error
                RETRIES.labels("failed").inc()
            except _Busy:
                RETRIES.labels("busy").inc()
                trip.leave_place(ran=False)
                trip.trace.enter(Step.QUEUE)
                await asyncio.sleep(random.uniform(*BUSY_PAUSE_S))  # noqa: S311  jitter, not a secret
                again = True

    def _may_try_again(self, trip: Trip, failed: Replica) -> bool:
        """On another replica, where there is one, and while the budget lasts."""
        if trip.tries >= self.patience.max_attempts:
            return False
        if len(self._registry.all) > 1 and not self._registry.has_other(failed):
            return False
        if not self._budget.withdraw():
            RETRIES.labels("over_budget").inc()
            return False
        return True

    async def _enter(self, trip: Trip, deadline: float, again: bool) -> None:
        if trip.place is None:
            call = trip.call
            if await self._registry.choose_now(call.want) is None:
                raise self._no_replica()
            if trip.ticket is None:
                trip.ticket = self.ticket(call)
            trip.place = await self._queue.enter(
                Ask(
                    call.principal.tenant,
                    trip.ticket,
                    places=call.request.num_choices,
                    num_bytes=len(call.body),
                    wait_s=deadline - time.monotonic(),
                    again=again,
                )
            )

    async def _try(self, trip: Trip) -> Attempt:
        call = trip.call
        if call.time_left() <= 0:  # nobody would hear the answer
            raise Timeout("Its deadline is over.", code="queue_timeout", headers=retry_headers(1.0))
        replica = await self._registry.choose_now(call.want, tried=trip.tried)
        if replica is None:
            raise self._no_replica()
        if trip.ticket is not None:
            trip.ticket.load_tokens = _load_tokens(replica, call)
        trip.tries += 1
        load = self._registry.send(replica, call.want)
        attempt = trip.attempt = Attempt(trip.next_number, replica, load)
        limit_s = max(
            LEAST_S, min(self.patience.first_token_s(time.monotonic() - call.arrived), call.time_left())
        )
        headers = call.engine_headers(attempt.number, round(limit_s * DEADLINE_SHARE * 1000))
        upstream = attempt.upstream = await replica.driver.open(
            call.endpoint.value, call.body, headers, self.patience.answer_s(call)
        )
        if TRAILER_HEADER in upstream.headers:
            attempt.trailer = read_trailer(upstream.headers[TRAILER_HEADER])
        if upstream.status != 200:
            await self._refused(trip, attempt, upstream)
        _require_answer(attempt, upstream, streaming=call.request.streaming)
        if call.request.streaming:
            attempt.first = await self._first_bytes(upstream)
        else:
            attempt.first = await self._whole(upstream)
        return attempt

    def _no_replica(self) -> Unavailable:
        return Unavailable(
            "No replica of this model is up.",
            code="no_replica",
            retry_after_s=self._registry.retry_after_s(),
        )

    async def _whole(self, upstream: Upstream) -> bytes:
        try:
            return await read_all(upstream, MAX_UNARY_BYTES, self.patience.idle_s)
        except _TooLong:
            raise AnswerTooLong(MAX_UNARY_BYTES) from None

    async def _refused(self, trip: Trip, attempt: Attempt, upstream: Upstream) -> None:
        """Always raises: what the client hears, `_Busy`, or `UpstreamFailed` when another try may do
        better."""
        body = await read_all(upstream, MAX_ERROR_BYTES, self.patience.idle_s)
        error = upstream_error(upstream.status, body)
        verdict = verdict_of(upstream.status, error)
        if verdict is Verdict.BUSY and attempt.trailer is None:
            attempt.load.dismiss()
            trip.attempt, trip.tries = None, trip.tries - 1  # it never reached the core
            await attempt.close()
            raise _Busy
        if verdict is Verdict.ANSWER:
            attempt.load.dismiss()
            if attempt.trailer is None:
                trip.attempt = None
                await attempt.close()
            raise error
        if attempt.trailer is not None and (
            len(self._registry.all) == 1 or trip.tries >= self.patience.max_attempts
        ):
            raise error  # the engine ended it, in its own words, and nobody else is left to ask
        raise UpstreamFailed(
            f"the replica answered {upstream.status}: {error.message}", blames=upstream.status != 503
        )

    async def _first_bytes(self, upstream: Upstream) -> bytes:
        try:
            first = await upstream.read_some(self.patience.first_byte_s)
        except TimeoutError:
            raise UpstreamFailed("the replica sent no byte in time") from None
        if not first:
            raise UpstreamFailed("the replica ended its stream before it began")
        return first


def _require_answer(attempt: Attempt, upstream: Upstream, *, streaming: bool) -> None:
    """That it is an answer of an engine, and not of whatever else listens there: nothing else may reach a
    client. Raises `UpstreamFailed`."""
    said = upstream.headers.get("content-type", "")
    if not said.startswith("text/event-stream" if streaming else "application/json"):
        raise UpstreamFailed(f"the replica answered in {said[:64] or 'no'} format")
    if not streaming and (attempt.trailer is None or not attempt.trailer.finished):
        raise UpstreamFailed("the replica's answer doesn't say how it ended")


def _load_tokens(replica: Replica, call: Call) -> int:
    """What the choice of this replica makes the adapter's load cost, in tokens: by what the replica says it
    holds, since a load that was only asked for is this request's own."""
    held = 1.0 if call.artefact is None else replica.held.get(call.artefact, 0.0)
    return round(LOAD_TOKENS * (1 - held))


class _TooLong(UpstreamFailed):
    """More came than there is room for."""


class _Busy(Exception):
    """The replica is at its admission limit."""


async def read_all(upstream: Upstream, most_bytes: int, idle_s: float) -> bytes:
    """A whole body; raises `UpstreamFailed`, also when it is longer than `most_bytes`."""
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            part = await upstream.read_some(idle_s)
        except TimeoutError:
            raise UpstreamFailed("the replica fell silent within its answer") from None
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
        if size > most_bytes:
            raise _TooLong(f"the replica's answer is longer than {most_bytes} bytes")
