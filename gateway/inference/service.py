"""The walk of one request (docs/ARCHITECTURE.md): door, decode, resolve, count, reserve, wait, relay, end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from uuid import UUID

import msgspec
import structlog
from litestar.types import Receive, Scope, Send

from adapters import wire
from adapters.refusal import RequestRefused
from adapters.wire import InferenceRequest
from gateway.aliases.weighted import Sticky
from gateway.api_keys.networks import require_address
from gateway.catalog.resolved import Resolved
from gateway.client_address import Address
from gateway.credentials import authorization_of
from gateway.direct_write import direct_write
from gateway.envelope import began_of, client_request_id_of, request_id_of, stopping
from gateway.errors import AnswerTooLong, ApiError, BadGateway, Unavailable, from_refusal
from gateway.events.recorder import Recorder
from gateway.events.trace import Step, Trace
from gateway.inference import metrics
from gateway.inference.answer_headers import answer_headers, processing, served_from, waited
from gateway.inference.body import read_body
from gateway.inference.call import Asked, Attempt, Call, Endpoint, Trip
from gateway.inference.client import Client, ClientGone, ClientPatience, error_frame
from gateway.inference.counting import Counter
from gateway.inference.deadline import deadline_s
from gateway.inference.dispatch import Dispatcher
from gateway.inference.ending import Cause, Ending, outlast
from gateway.inference.hints import Hints
from gateway.inference.keeping import Keeping
from gateway.inference.keeping_client import KeepingClient
from gateway.inference.relay import Relayed, relay
from gateway.inference.replays import Replays, Wish
from gateway.inference.sticky import sticky_of
from gateway.inference.wanting import session_of
from gateway.limits.limiter import Limiter
from gateway.limits.reservation import Reservation
from gateway.principal import Principal, TenantId
from gateway.receipts.issuer import Issuer
from gateway.replicas.registry import Registry
from gateway.usage.journal import Journal, JournalFailed

log = structlog.get_logger(__name__)

_DECODE: dict[Endpoint, Callable[[bytes], InferenceRequest]] = {
    Endpoint.CHAT: wire.decode_chat,
    Endpoint.COMPLETIONS: wire.decode_completion,
}


class Resolver(Protocol):
    async def resolve(self, principal: Principal, model: str, sticky: Sticky | None = None) -> Resolved: ...


class KeyReader(Protocol):
    """The part of the authenticator that a moved epoch needs."""

    async def principal(self, authorization: str | None) -> Principal: ...

    def invalidate(self, tenant: TenantId) -> None: ...


class Door(msgspec.Struct, frozen=True):
    """A request as it came in, with whom the guard let pass."""

    endpoint: Endpoint
    principal: Principal
    scope: Scope
    receive: Receive
    arrived: float  # monotonic clock

    @property
    def request_id(self) -> UUID:
        return request_id_of(self.scope)

    @property
    def address(self) -> Address | None:
        """Where it came from, as the guard saw it."""
        found: Address | None = self.scope["state"].get("address")
        return found


@dataclass(frozen=True, slots=True)
class BodyLimits:
    most_bytes: int
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the walk passes through; each is one per worker."""

    keys: KeyReader
    catalog: Resolver
    limiter: Limiter
    counter: Counter
    dispatcher: Dispatcher
    registry: Registry
    journal: Journal
    receipts: Issuer
    replays: Replays
    recorder: Recorder
    body: BodyLimits
    client: ClientPatience


@dataclass(slots=True)
class _Visit:
    """What one request holds until another part ends it."""

    door: Door
    reservation: Reservation
    trace: Trace
    client: Client | None = None
    keeping: Keeping | None = None
    ended: bool = False  # or is about to be, by whoever answers it

    async def refuse(self, raised: ApiError | RequestRefused) -> None:
        """Raises the error with the limits' headers; within a stream that has begun, it is a frame."""
        error = raised if isinstance(raised, ApiError) else from_refusal(raised)
        error.headers = {**self.reservation.headers, **error.headers}
        self.trace.error = error
        if self.client is None or not self.client.started:
            raise error from (raised.__cause__ if error is raised else raised)
        with suppress(ClientGone):
            await self.client.fail(error)


class Walk:
    """One per worker; holds no request's state."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._hints = Hints(parts.registry)

    async def serve(self, door: Door, send: Send) -> None:
        """Answers one request. Raises `ApiError` for the application to answer, as long as nothing was
        sent."""
        trace = Trace(door.arrived, began_of(door.scope))
        try:
            reservation = await self._parts.limiter.admit(door.principal, str(door.request_id))
            await self._visit(_Visit(door, reservation, trace), send)
        except ApiError as error:
            trace.error = error
            raise
        except asyncio.CancelledError:
            trace.stopped = True
            raise
        finally:
            self._parts.recorder.note(door.scope, door.principal, trace)

    async def _visit(self, visit: _Visit, send: Send) -> None:
        door = visit.door
        try:
            asked = await self._asked(visit)
            wish = self._parts.replays.wish(door.scope, asked)
            visit.client = client = self._client(door, send, visit, wish)
            if wish is None or not await self._replayed(visit, wish):
                await self._computed(visit, asked, client)
        except ClientGone:
            visit.trace.client_left = True
            log.info("client_left", request=str(door.request_id))
        except (ApiError, RequestRefused) as raised:
            await visit.refuse(raised)
        finally:
            await self._leave(visit)

    def _client(self, door: Door, send: Send, visit: _Visit, wish: Wish | None) -> Client:
        if wish is None:
            return Client(door.receive, send, self._parts.client, direct_write(door.scope))
        client = KeepingClient(door.receive, send, self._parts.client, direct_write(door.scope))
        visit.keeping = client.keeping = self._parts.replays.keeping(wish)
        client.leave_place = partial(self._parts.limiter.leave_place, visit.reservation)
        return client

    async def _replayed(self, visit: _Visit, wish: Wish) -> bool:
        """Whether the answer was there, and was given."""
        client, keeping = visit.client, visit.keeping
        visit.trace.enter(Step.KEPT)
        assert isinstance(client, KeepingClient)
        assert keeping is not None
        with client.watched():
            finding = self._parts.replays.find(wish, keeping)
            streaming = wish.asked.request.streaming
            kept = await client.patiently(finding) if streaming else await finding
            if kept is None:
                return False
            if kept.hit:
                visit.trace.enter(Step.LIMITS)
                await self._parts.limiter.reserve_kept(visit.reservation, kept.used)
            visit.ended = True  # by what gives it, from here on
            await self._parts.replays.give(kept, wish, keeping, client, visit.reservation)
        return True

    async def _computed(self, visit: _Visit, asked: Asked, client: Client) -> None:
        reservation, keeping = visit.reservation, visit.keeping
        call = await self._counted(visit, asked)
        trip = Trip(call, ticket=reservation.ticket, keeping=keeping, trace=visit.trace)
        headers = answer_headers(call, reservation)
        client.stream_headers = headers if keeping is None else headers | keeping.headers
        if keeping is not None:
            keeping.record(str(call.request_id), answer_headers(call, None))
        visit.ended = True
        try:
            await self.carry(trip, client, reservation)
        finally:
            visit.trace.observe(trip)

    async def _leave(self, visit: _Visit) -> None:
        """Lets go of what a request that went no further still holds."""
        if visit.keeping is not None:
            await visit.keeping.close(client_left=visit.client is not None and visit.client.gone)
        if not visit.ended:
            await outlast(asyncio.ensure_future(self._parts.limiter.settle(visit.reservation)))

    async def _asked(self, visit: _Visit) -> Asked:
        """Everything that is known of a request before its tokens are counted."""
        parts, door, trace = self._parts, visit.door, visit.trace
        principal = trace.principal = await self._current(door, door.principal, visit.reservation)
        trace.enter(Step.BODY)
        body = await read_body(
            door.scope, door.receive, most_bytes=parts.body.most_bytes, timeout_s=parts.body.timeout_s
        )
        trace.enter(Step.RESOLVE)
        within_s = deadline_s(door.scope)
        request = trace.request = _DECODE[door.endpoint](body)
        sticky = partial(sticky_of, door.scope, request, door.request_id)
        resolved = trace.resolved = await parts.catalog.resolve(principal, request.model, sticky)
        visit.reservation.for_model(resolved)
        return Asked(
            request_id=door.request_id,
            client_request_id=client_request_id_of(door.scope),
            endpoint=door.endpoint,
            principal=principal,
            body=body,
            request=request,
            resolved=resolved,
            arrived=door.arrived,
            deadline=None if within_s is None else door.arrived + within_s,
            trace=trace,
        )

    async def _counted(self, visit: _Visit, asked: Asked) -> Call:
        """The rest of what comes before the wait."""
        parts, door, reservation = self._parts, visit.door, visit.reservation
        trace = visit.trace
        trace.enter(Step.COUNT)
        counted = await parts.counter.count(asked.request, len(asked.body), asked.principal.tenant)
        trace.prompt_tokens = counted.prompt_tokens
        trace.enter(Step.LIMITS)
        claim = visit.keeping.claim if visit.keeping is not None else None
        call = Call(
            request_id=asked.request_id if claim is None else claim.hold.request_id,
            client_request_id=asked.client_request_id,
            endpoint=asked.endpoint,
            principal=asked.principal,
            body=asked.body,
            request=asked.request,
            resolved=asked.resolved,
            prompt_tokens=counted.prompt_tokens,
            max_tokens=counted.max_tokens,
            arrived=asked.arrived,
            arrived_at=asked.arrived_at,
            deadline=asked.deadline,
            prefix=counted.prefix,
            session=session_of(door.scope, asked.request),
        )
        trace.original = call.request_id
        parts.dispatcher.aim(call)
        ticket = parts.dispatcher.ticket(call)  # before the hint, which makes the load look done
        self._hints.give(call)
        await parts.limiter.reserve(reservation, call.tokens, ticket)
        if reservation.epoch != asked.principal.epoch:  # something of the tenant changed since it was read
            principal = await self._current(door, asked.principal, reservation)
            sticky = partial(sticky_of, door.scope, asked.request, door.request_id)
            resolved = await parts.catalog.resolve(principal, asked.request.model, sticky)
            call = call.with_rights(principal, resolved)
            parts.dispatcher.aim(call)
            if visit.keeping is not None:
                visit.keeping.forgo_cache()  # it was asked under what the tenant was
            self._hints.give(call)
        return call

    async def _current(self, door: Door, principal: Principal, reservation: Reservation) -> Principal:
        """The principal as it is now; raises what a revoked key or suspended tenant hears."""
        if reservation.epoch == principal.epoch:
            return principal
        self._parts.keys.invalidate(principal.tenant)
        now = await self._parts.keys.principal(authorization_of(door.scope))
        require_address(now, door.address)
        return now

    async def carry(self, trip: Trip, client: Client, reservation: Reservation | None) -> None:
        """Waits, relays and ends. Whatever happens here, the request is metered and settled once."""
        parts = self._parts
        ending = Ending(trip, reservation, parts.limiter, parts.journal, parts.receipts)
        cause = Cause.FAILED
        try:
            with client.watched():
                try:
                    await self._answer(trip, client, ending)
                except ApiError as error:
                    trip.trace.error = error
                    await _surely(ending, _cause_of(trip, error))
                    await client.fail(error)
                except JournalFailed:
                    trip.trace.error = lost = Unavailable("The request's usage could not be recorded.")
                    await client.fail(lost)
        except ClientGone:
            cause = Cause.CLIENT_LEFT
            raise
        except asyncio.CancelledError:  # this process leaves; before the headers, `envelope.py` says so
            await _surely(ending, cause)
            if client.started and not client.finished:
                await client.write(error_frame(stopping()), more=False)
            raise
        finally:
            await _surely(ending, cause)

    async def _answer(self, trip: Trip, client: Client, ending: Ending) -> None:
        begin = self._parts.dispatcher.begin(trip, ending)
        if not trip.call.request.streaming:
            await self._unary(trip, client, ending, await begin)
            return
        attempt = await client.patiently(begin)
        trip.trace.enter(Step.STREAM)
        client.stream_headers = {**client.stream_headers, **waited(trip)}
        metrics.observe_first_bytes(trip.call)
        relayed = await relay(attempt, client, self._parts.dispatcher.patience.idle_s)
        if trip.keeping is not None:
            trip.keeping.streamed(relayed)
        cause = Cause.FAILED if relayed.broke_off and not relayed.terminal else Cause.COMPLETE
        record = await client.last(partial(ending.finish, cause))
        finished = record is not None and record.outcome == "finished"
        if trip.keeping is not None and finished:
            trip.keeping.land(attempt)
        receipt = self._parts.receipts.comment(ending.event) if finished and relayed.terminal else b""
        await client.write(receipt + _last_bytes(relayed, finished), more=False)

    async def _unary(self, trip: Trip, client: Client, ending: Ending, attempt: Attempt) -> None:
        assert attempt.upstream is not None
        metrics.observe_first_bytes(trip.call)
        content_type = attempt.upstream.headers.get("content-type", "application/json")
        if trip.keeping is not None:
            trip.keeping.whole(attempt.first, content_type)
        record = await client.last(partial(ending.finish, Cause.COMPLETE))
        if trip.keeping is not None and record is not None and record.outcome == "finished":
            trip.keeping.land(attempt)
        receipt = self._parts.receipts.headers(ending.event)
        found = {**processing(trip.call), **waited(trip), **served_from(attempt), **receipt}
        headers = {"content-type": content_type, **client.stream_headers, **found}
        await client.respond(attempt.upstream.status, attempt.first, headers)


async def _surely(ending: Ending, cause: Cause) -> None:
    """The end of a walk that may have ended already; what could not be recorded was logged or is now."""
    try:
        await ending.finish(cause)
    except JournalFailed as error:
        log.critical("usage_not_recorded", reason=str(error))


def _cause_of(trip: Trip, error: ApiError) -> Cause:
    """An attempt that the engine itself ended has its own outcome; any other broke off."""
    attempt = trip.attempt
    if isinstance(error, AnswerTooLong):
        return Cause.CLIENT_LEFT
    return Cause.COMPLETE if attempt is not None and attempt.trailer is not None else Cause.FAILED


def _last_bytes(relayed: Relayed, finished: bool) -> bytes:
    if finished:
        return relayed.terminal
    if relayed.told_error:
        return b""
    return b"data: " + BadGateway("The model's replica broke off within its answer.").openai_body() + b"\n\n"
