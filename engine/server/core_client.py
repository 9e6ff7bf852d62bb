"""The server's view of the core: which attempts are open, how recent ones ended, and what the core last said
of itself. The only sender and receiver of frames on this side."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import structlog

from engine.core.protocol import (
    Abort,
    AdapterEvent,
    AdapterRef,
    AddRequest,
    Drain,
    Ended,
    Failed,
    Look,
    Outcome,
    Prefetch,
    Ready,
    Residency,
    Retire,
    Stats,
    StopChoice,
    Tier,
    Timings,
    ToCore,
    Tokens,
    Usage,
)
from engine.core.transport import PeerGone, ServerTransport
from engine.server.attempt import Attempt
from engine.server.errors import conflict, unavailable
from engine.server.metrics import Metrics
from engine.server.transcript import ChoiceEnds

log = structlog.get_logger("engine.server")

T = TypeVar("T")

MAX_OUTGOING = 8_192
"""Frames waiting for the core; past it the core counts as stuck and new requests are refused."""


class CoreLost(Exception):
    """The core can't go on; every open attempt has been told."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    open_requests: int
    unread_tokens: int  # of one stream
    recent: int  # ended attempts remembered
    watchers: int  # streams of the state
    silence_s: float  # of the core, which reports each second: after it, the core gets no more requests


class CoreClient:
    """Owns the registry of open attempts. Lives in one event loop."""

    def __init__(self, transport: ServerTransport, metrics: Metrics, limits: ClientLimits) -> None:
        self._transport = transport
        self._metrics = metrics
        self._limits = limits
        self._open: dict[tuple[str, int], Attempt] = {}
        self._num_yielding = 0  # of them; bounded by `engine.proofs`
        self._recent: OrderedDict[tuple[str, int], Ended | None] = OrderedDict()
        self._latest: dict[str, int] = {}
        self._outgoing: asyncio.Queue[ToCore] = asyncio.Queue()
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._watchers: set[asyncio.Event] = set()
        self._adapter_waiters: dict[str, list[asyncio.Future[AdapterEvent]]] = {}
        self._looks: dict[str, list[asyncio.Future[Residency]]] = {}
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self._heard_s = time.monotonic()
        self.num_messages = 0  # of the core, so far
        self.stats: Stats | None = None
        self.failure: str | None = None
        self.draining = False

    # -- what requests do

    @property
    def num_open(self) -> int:
        return len(self._open)

    @property
    def num_open_of_others(self) -> int:
        """But for proofs."""
        return len(self._open) - self._num_yielding

    @property
    def core(self) -> Ready:
        """What the core said when it became ready; raises 503 before that and after it failed."""
        if self.failure is not None:
            raise unavailable("The engine core has failed.", "replica_failed")
        if not self.ready.done():
            raise unavailable("The engine is still loading its model.", "replica_loading")
        return self.ready.result()

    def check_serving(self) -> None:
        """Raises 503 unless the core is there and this server means to go on."""
        assert self.core is not None
        if self.draining:
            raise unavailable("The engine is shutting down.", "replica_draining")
        if time.monotonic() - self._heard_s > self._limits.silence_s:
            raise unavailable("The engine core does not answer.", "replica_stalled")

    def admit(self) -> None:
        """Raises 503 when a new request can't be taken now. Proofs take no place from others."""
        self.check_serving()
        if self.num_open_of_others >= self._limits.open_requests or self._outgoing.qsize() >= MAX_OUTGOING:
            raise unavailable("The replica holds as many requests as it may.", "replica_busy")

    def submit(self, add: AddRequest, ends: ChoiceEnds | None = None) -> Attempt:
        """Hands the attempt to the core; from here on it ends with exactly one `Ended`. One that has
        `confirm_choices` comes with `ends`."""
        assert add.confirm_choices == (ends is not None)
        self.admit()
        key = (add.request, add.attempt)
        if key in self._open or key in self._recent:
            raise conflict(f"Attempt {add.attempt} of request {add.request} was seen before.")
        attempt = Attempt(add, self._limits.unread_tokens, ends)
        self._open[key] = attempt
        self._num_yielding += add.yields
        if add.adapter is not None:
            self._know(add.adapter)
        self._latest[add.request] = max(add.attempt, self._latest.get(add.request, 0))
        self._send(add)
        return attempt

    def abort(self, attempt: Attempt) -> None:
        """Idempotent; `attempt.ended` tells when it is done."""
        if attempt.id in self._open:
            self._send(Abort(*attempt.id))

    async def abort_by_id(self, request: str, number: int | None) -> Ended | None:
        """The acknowledged end of an attempt (the latest where `number` is None), or None for one that never
        reached the core. It is refused should it still arrive: None promises that it costs nothing."""
        number = number if number is not None else self._latest.get(request)
        if number is None:
            return None
        key = (request, number)
        if attempt := self._open.get(key):
            self._send(Abort(request, number))
            return await asyncio.shield(attempt.ended)
        if key not in self._recent:
            self._remember(key, None)
        return self._recent[key]

    # -- what the control routes do

    def prefetch(
        self,
        adapter: AdapterRef,
        within_ms: int | None = None,
        *,
        keep_ms: int | None = None,
        on_device: bool = False,
    ) -> None:
        assert self.core is not None
        self._know(adapter)
        self._send(Prefetch(adapter, within_ms, keep_ms, on_device))

    def retire(self, adapter: AdapterRef) -> None:
        assert self.core is not None
        self._send(Retire(adapter))

    def owner_of(self, artefact: str) -> str | None:
        """The owner of an adapter that a request or hint has named lately."""
        return self._owners.get(artefact)

    def when_adapter(self, artefact: str) -> asyncio.Future[AdapterEvent]:
        """Resolves with the next event of an adapter."""
        future: asyncio.Future[AdapterEvent] = asyncio.get_running_loop().create_future()
        self._adapter_waiters.setdefault(artefact, []).append(future)
        return future

    async def residency(self, artefact: str) -> Residency:
        """What the core holds of an adapter, from the core itself. Raises 503 once it is lost."""
        assert self.core is not None
        future: asyncio.Future[Residency] = asyncio.get_running_loop().create_future()
        self._looks.setdefault(artefact, []).append(future)
        self._send(Look(artefact))
        try:
            return await asyncio.wait_for(future, self._limits.silence_s)
        except TimeoutError:
            raise unavailable("The engine core does not answer.", "replica_stalled") from None

    def watch(self) -> asyncio.Event:
        """An event that is set whenever the state has changed; give it back with `unwatch`."""
        if len(self._watchers) >= self._limits.watchers:
            raise unavailable("Too many clients watch the state.", "too_many_watchers")
        event = asyncio.Event()
        self._watchers.add(event)
        return event

    def unwatch(self, event: asyncio.Event) -> None:
        self._watchers.discard(event)

    # -- the life of the connection

    async def run(self) -> None:
        """Sends and receives until the core has drained; raises `CoreLost` when it left before, and whatever
        ends either direction: a server that only hears its core would take requests and answer none."""
        directions = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            ended, _ = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            for direction in ended:
                direction.result()
        except PeerGone as error:
            if self.draining and not self._open:
                return  # it left because it was told to
            self.fail(str(error))
            raise CoreLost(self.failure) from error
        finally:
            for direction in directions:
                direction.cancel()

    def fail(self, reason: str) -> None:
        """The core is lost: end every open attempt. What no journal holds isn't counted: usage is zero."""
        if self.failure is not None:
            return
        self.failure = reason
        log.error("core_lost", reason=reason, open_requests=len(self._open))
        for attempt in list(self._open.values()):
            total_ms = (time.monotonic() - attempt.started_s) * 1000
            self._end(
                Ended(
                    *attempt.id,
                    outcome=Outcome.CORE_FAILED,
                    usage=Usage(0, 0, 0),
                    timings=Timings(0.0, 0.0, None, total_ms),
                    tier=Tier.BASE,
                    reason="The engine failed while it served this request.",
                )
            )
        lost = unavailable("The engine core has failed.", "replica_failed")
        for loads in self._adapter_waiters.values():
            _fail_all(loads, lost)
        for looks in self._looks.values():
            _fail_all(looks, lost)
        self._notify()

    def stop_admitting(self) -> None:
        self.draining = True
        self._notify()

    def drain(self) -> None:
        """Ask the core to end what is left and exit."""
        self._send(Drain())

    async def _read(self) -> None:
        while True:
            frames = await self._transport.recv()
            self._heard_s = time.monotonic()
            self.num_messages += 1
            for frame in frames:
                self._receive(frame)

    async def _write(self) -> None:
        while True:
            frames = [await self._outgoing.get()]
            while not self._outgoing.empty():
                frames.append(self._outgoing.get_nowait())
            await self._transport.send(*frames)

    def _send(self, frame: ToCore) -> None:
        # bounded by `admit`: new requests are refused past MAX_OUTGOING; an open one adds few more frames
        self._outgoing.put_nowait(frame)

    def _receive(self, frame: object) -> None:
        match frame:
            case Tokens():
                self._tokens(frame)
            case Ended():
                self._end(frame)
            case Stats():
                self.stats = frame
                self._notify()
            case AdapterEvent():
                self._adapter(frame)
            case Residency():
                for look in self._looks.pop(frame.artefact, ()):
                    if not look.done():
                        look.set_result(frame)
            case Ready():
                log.info("core_ready", **msgspec.structs.asdict(frame))
                self.ready.set_result(frame)
                self._notify()
            case Failed():
                self.fail(frame.reason)
            case _:
                raise AssertionError(f"unknown frame {type(frame).__name__}")

    def _tokens(self, frame: Tokens) -> None:
        attempt = self._open.get((frame.request, frame.attempt))
        if attempt is None:
            return
        self._metrics.tokens(attempt, len(frame.tokens))
        attempt.put(frame)
        if attempt.overflowed:
            self.abort(attempt)
        num_tokens = attempt.ends.feed(frame) if attempt.ends is not None else None
        if num_tokens is not None:  # not when the client reads of it: it may read slowly, or nothing
            self._send(StopChoice(*attempt.id, frame.choice, num_tokens))

    def _end(self, frame: Ended) -> None:
        attempt = self._open.pop((frame.request, frame.attempt), None)
        if attempt is None:
            return
        self._num_yielding -= attempt.add.yields
        self._remember(attempt.id, frame)
        self._metrics.ended(frame)
        attempt.put(frame)
        usage = msgspec.structs.asdict(frame.usage)
        log.info(
            "request_ended",
            request=frame.request,
            attempt=frame.attempt,
            tenant=attempt.add.tenant,
            outcome=frame.outcome.value,
            **usage,
        )

    def _adapter(self, event: AdapterEvent) -> None:
        for waiter in self._adapter_waiters.pop(event.artefact, ()):
            if not waiter.done():
                waiter.set_result(event)
        self._notify()

    def _remember(self, key: tuple[str, int], ended: Ended | None) -> None:
        self._recent[key] = ended
        if len(self._recent) > self._limits.recent:
            (request, number), _ = self._recent.popitem(last=False)
            if self._latest.get(request) == number:
                del self._latest[request]

    def _know(self, adapter: AdapterRef) -> None:
        self._owners[adapter.artefact] = adapter.owner
        self._owners.move_to_end(adapter.artefact)
        if len(self._owners) > self._limits.recent:
            self._owners.popitem(last=False)

    def _notify(self) -> None:
        for event in self._watchers:
            event.set()


def _fail_all(futures: Iterable[asyncio.Future[T]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
