"""Answers that are not computed: of a request's first try, or of the same question asked before.

A replay of a first try is free: its row is the first try's. A hit of the response cache is metered: a row of
its own, journalled before the last bytes go out, as for every other answer. Both took a request and a place
at the door, a hit also those of its adapter's limits, and its price of a hard budget; neither takes tokens
from a bucket.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import structlog
from litestar.types import Scope

from gateway.answers.answer import Answer
from gateway.answers.sealing import DataKeys
from gateway.envelope import stopping
from gateway.errors import Unavailable
from gateway.idempotency.names import key_of
from gateway.idempotency.service import Idempotency, Retryable
from gateway.inference import metrics
from gateway.inference.call import Asked
from gateway.inference.client import error_frame
from gateway.inference.ending import in_background, outlast
from gateway.inference.flights import Flights, Landed
from gateway.inference.keeping import CACHE_HEADER, ORIGINAL, Keeping
from gateway.inference.keeping_client import KeepingClient
from gateway.inference.response_cache import ResponseCache
from gateway.inference.response_cache_key import CacheKey, base_digest_of, cache_key, canonical, is_repeatable
from gateway.limits.amounts import NOTHING, Used
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import Reservation
from gateway.receipts.issuer import Issuer
from gateway.replicas.registry import Registry
from gateway.usage.event import BILLED_OUTCOMES, UsageEvent
from gateway.usage.journal import Journal, JournalFailed

log = structlog.get_logger(__name__)

REPLAYED = {"idempotent-replayed": "true"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request would rather not compute: its first try's answer, an equal one's, or either."""

    asked: Asked
    idempotency_key: str | None
    cache_key: CacheKey | None


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer that needs no replica. `hit`: of the response cache."""

    answer: Answer
    hit: bool

    @property
    def used(self) -> Used:
        """What a hit costs; a replay costs nothing."""
        usage = self.answer.usage
        return Used(usage.prompt, usage.completion, usage.cached, source="cache") if self.hit else NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayParts:
    """Each is one per worker."""

    cache: ResponseCache
    idempotency: Idempotency
    keys: DataKeys
    registry: Registry
    limiter: Limiter
    journal: Journal
    receipts: Issuer
    wait_s: float  # for the answer of an equal request that runs; less than a keep-alive's time


class Replays:
    """One per worker."""

    def __init__(self, parts: ReplayParts) -> None:
        self.parts = parts
        self._flights = Flights()

    async def run(self) -> None:
        """Renews what this worker holds, until cancelled."""
        await self.parts.idempotency.claims.run()

    def wish(self, scope: Scope, asked: Asked) -> Wish | None:
        """None for a request that uses neither, which costs it a look at its headers. Raises `BadRequest`."""
        name = key_of(scope["headers"])
        cached = self._cache_key(asked)
        return None if name is None and cached is None else Wish(asked, name, cached)

    def keeping(self, wish: Wish) -> Keeping:
        return Keeping(self.parts.cache, self.parts.idempotency, wish.cache_key)

    async def find(self, wish: Wish, keeping: Keeping) -> Kept | None:
        """An answer, or None: then it is this request's to compute, and `keeping` holds what others wait for.

        Waits for a first try that runs, and for a while for an equal request. Raises `ApiError`.
        """
        if wish.idempotency_key is not None:
            claimed = await self.parts.idempotency.claim(self._retryable(wish, wish.idempotency_key))
            if isinstance(claimed, Answer):
                return Kept(claimed, hit=False)
            keeping.claim = claimed
        if wish.cache_key is None:
            return None
        answer = await self._cached(wish.cache_key, keeping)
        metrics.CACHE.labels("miss" if answer is None else "hit").inc()
        return None if answer is None else Kept(answer, hit=True)

    async def give(
        self, kept: Kept, wish: Wish, keeping: Keeping, client: KeepingClient, held: Reservation
    ) -> None:
        """Sends it, meters it if it is a hit, and settles. Raises `ClientGone`."""
        answer, trace = kept.answer, wish.asked.trace
        trace.kept, trace.original = "cached" if kept.hit else "replayed", UUID(answer.request_id)
        ending = _KeptEnding(self.parts, kept, wish.asked, keeping, held)
        client.stream_headers = {**_headers(kept), **held.headers}
        try:
            if answer.streamed:
                await client.write(answer.body)
                await client.last(partial(ending.finish, "finished"))
                comment = self.parts.receipts.comment(ending.event)
                await client.write(comment + answer.terminal, more=False)
            else:
                await client.last(partial(ending.finish, "finished"))
                spent_ms = round((time.monotonic() - wish.asked.arrived) * 1000)
                about = {"content-type": answer.content_type, "openai-processing-ms": str(spent_ms)}
                receipt = self.parts.receipts.headers(ending.event)
                await client.respond(200, answer.body, {**about, **client.stream_headers, **receipt})
        except JournalFailed:
            trace.error = lost = Unavailable("The request's usage could not be recorded.")
            await client.fail(lost)
        except asyncio.CancelledError:
            if not client.gone:  # this process leaves; before the headers, `envelope.py` says so
                await ending.surely("failed")
                if client.started and not client.finished:
                    await client.write(error_frame(stopping()), more=False)
            raise
        finally:  # of one whose client left: what was sent counts
            await ending.surely("aborted")

    def _cache_key(self, asked: Asked) -> CacheKey | None:
        policy = asked.principal.response_cache
        if policy is None or not is_repeatable(asked.request, policy.mode):
            return None
        digest = base_digest_of(self.parts.registry.all)
        return None if digest is None else cache_key(self.parts.keys, asked, policy, digest)

    async def _cached(self, key: CacheKey, keeping: Keeping) -> Answer | None:
        """One of many equal requests looks and computes; the others of this worker wait for it, at most for
        `wait_s` in all."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.parts.wait_s
        while True:
            flight = self._flights.under_way(key.name)
            if flight is None:
                return await self._lead(key, keeping)
            if self._flights.full(key.tenant):
                return None
            landed = await flight.landed(until - loop.time())
            if isinstance(landed, Answer):
                return landed
            if landed is Landed.NOTHING:
                return None

    async def _lead(self, key: CacheKey, keeping: Keeping) -> Answer | None:
        flight = self._flights.begin(key.name, key.tenant)
        keeping.flight = flight
        answer = await self.parts.cache.find(key)
        if answer is not None:
            flight.land(answer)
            flight.close()
        return answer

    @staticmethod
    def _retryable(wish: Wish, key: str) -> Retryable:
        asked = wish.asked
        return Retryable(
            principal=asked.principal,
            key=key,
            content=asked.endpoint.value.encode() + b"\0" + canonical(asked.request),
            request_id=asked.request_id,
            resolved=asked.resolved,
            arrived_at=asked.arrived_at,
        )


class _KeptEnding:
    """The end of a request that no replica saw: what `Ending` is to others."""

    def __init__(
        self, parts: ReplayParts, kept: Kept, asked: Asked, keeping: Keeping, held: Reservation
    ) -> None:
        self._parts = parts
        self._kept = kept
        self._asked = asked
        self._keeping = keeping
        self._held = held
        self._task: asyncio.Task[None] | None = None
        self.event: UsageEvent | None = None  # of a hit, once it is durable

    async def finish(self, outcome: str) -> None:
        """Exactly once; a second call joins the first. Raises `JournalFailed`."""
        if self._task is None:
            self._task = in_background(self._finish(outcome))
        await outlast(self._task)

    async def surely(self, outcome: str) -> None:
        """The same, at the end of a walk that may have ended already."""
        try:
            await self.finish(outcome)
        except JournalFailed as error:
            log.critical("usage_not_recorded", reason=str(error))

    async def _finish(self, outcome: str) -> None:
        if not self._kept.hit:
            await self._parts.limiter.settle(self._held)
            return
        bills = outcome in BILLED_OUTCOMES and await self._keeping.given(self._kept.answer)
        settle = self._parts.limiter.settle(self._held, self._kept.used if bills else NOTHING)
        metered, _ = await asyncio.gather(self._meter(outcome, bills), settle, return_exceptions=True)
        if isinstance(metered, BaseException):
            await self._keeping.retract()
            raise metered

    async def _meter(self, outcome: str, bills: bool) -> None:
        claim = self._keeping.claim
        request_id = self._asked.request_id if claim is None else claim.hold.request_id
        attempt = self._keeping.attempts_after + 1
        event = hit_event(self._asked, self._kept.answer, request_id, attempt, outcome, bills)
        event = self._parts.receipts.price(event)
        metrics.ENDED.labels("cached").inc()
        await self._parts.journal.append(event)
        self._asked.trace.metered = event
        self.event = event


def _headers(kept: Kept) -> dict[str, str]:
    """Those of the answer, and where it came from."""
    found = {**kept.answer.headers, CACHE_HEADER: "hit" if kept.hit else "off"}
    found[ORIGINAL] = kept.answer.request_id
    return found if kept.hit else found | REPLAYED


def hit_event(
    asked: Asked, answer: Answer, request_id: UUID, attempt: int, outcome: str, bills: bool
) -> UsageEvent:
    """The row of a cache hit: the tokens that the answer tells, at the price of `source` cache."""
    adapter, usage = asked.resolved.adapter, answer.usage
    return UsageEvent(
        request_id=request_id,
        attempt=attempt,
        tenant_id=asked.principal.tenant,
        key_id=asked.principal.key_id,
        base_id=asked.resolved.base_id,
        outcome=outcome,
        source="cache",
        created_at=asked.arrived_at,
        ended_at=datetime.now(UTC),
        adapter_name=adapter.name if adapter else None,
        adapter_version=adapter.version if adapter else None,
        artefact=adapter.artefact if adapter else None,
        owner_id=adapter.owner if adapter else None,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        cached_tokens=usage.cached,
        billed_prompt_tokens=usage.prompt if bills else 0,
        billed_completion_tokens=usage.completion if bills else 0,
        billed_cached_tokens=usage.cached if bills else 0,
        total_ms=round((time.monotonic() - asked.arrived) * 1000),
        service_class=asked.principal.service_class,
        client_request_id=asked.client_request_id,
    )
