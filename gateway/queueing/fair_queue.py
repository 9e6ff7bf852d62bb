"""The one place where requests wait, as the event loop sees it: `scheduler.py` decides, this wakes the
waiting.

Owned by one worker's event loop; nothing here blocks or locks. With `sharing`, the places are divided among
all workers (`sharing.py`); without, this one has all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.errors import ApiError, Timeout, Unavailable, retry_headers
from gateway.principal import TenantId
from gateway.queueing.admission import UNKNOWN_S, TurnedAway
from gateway.queueing.bounds import QueueLimits
from gateway.queueing.classes import CLASSES, WEIGHTS, class_index
from gateway.queueing.exchange import POOL, Exchange
from gateway.queueing.lanes import Entry
from gateway.queueing.metrics import RUNNING, SHED, WAIT_BY_CLASS, WAITING, WAITING_BYTES, WAITING_TOKENS
from gateway.queueing.places import Depth, Loads, Places
from gateway.queueing.scheduler import Scheduler
from gateway.queueing.sharing import Sharing
from gateway.queueing.ticket import Lines, Ticket

MARGIN_PART: Final = 4
"""A replica holds a quarter more than it runs (its admission limit)."""
TICK_S: Final = 1.0


class Ask(msgspec.Struct, frozen=True):
    """A request at the queue's entrance."""

    tenant: TenantId
    ticket: Ticket
    places: int = 1  # a request runs as one sequence for each choice
    num_bytes: int = 0  # of its body
    wait_s: float | None = None  # None = as long as the queue lets
    again: bool = False  # a full replica turned it away


@dataclass(slots=True, eq=False, kw_only=True)
class _Waiter(Entry):
    local: bool  # its tag is this process's own
    reply: asyncio.Future[bool]  # True = go, False = its time was over when its turn came


class Place:
    """The right to have one request at a replica. Given back once, with the tokens really used."""

    def __init__(self, queue: FairQueue, waiter: _Waiter) -> None:
        self._queue: FairQueue | None = queue
        self._waiter = waiter

    def leave(self, used: int | None = None) -> None:
        """Idempotent. `used` None: the request never ran, and its tenant is charged nothing."""
        if self._queue is not None:
            queue, self._queue = self._queue, None
            queue._release(self._waiter, used)


class FairQueue:
    """`capacity` is how many sequences all replicas run at a time; it moves with their number and health.
    `pool` names them: queues of one pool share them."""

    def __init__(
        self,
        limits: QueueLimits,
        *,
        capacity: int,
        weights: tuple[int, ...] = WEIGHTS,
        pool: str = POOL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._clock = clock
        self._scheduler = Scheduler(limits, weights)
        self._lines = Lines()
        self._sharing: Sharing | None = None
        self._places = Places(0, 0)
        self.set_capacity(capacity)

    @property
    def running(self) -> int:
        """Places taken."""
        return self._scheduler.used

    @property
    def waiting(self) -> int:
        return self._scheduler.waiting

    @property
    def depth(self) -> Depth:
        return self._scheduler.depth(self._clock())

    @property
    def workers(self) -> int:
        """That share the places, of all gateways, as last heard."""
        return 1 if self._sharing is None else self._sharing.workers

    def share(
        self,
        exchange: Exchange,
        *,
        workers: int,
        loads: Callable[[], Loads],
        heard: Callable[[Loads], None],
    ) -> None:
        """From now on places are given by `exchange`; none are, until `run` has reported."""
        self._sharing = Sharing(
            self._scheduler, exchange, workers=workers, loads=loads, heard=heard, clock=self._clock
        )
        self._scheduler.set_limits(0, 0)

    def set_capacity(self, capacity: int) -> None:
        self._places = Places(capacity, capacity // MARGIN_PART)
        self._scheduler.capacity = capacity
        if self._sharing is None:
            self._scheduler.set_limits(capacity, capacity + self._places.margin)
            self._pump()
        else:
            self._sharing.poke()

    def ticket(self, service_class: str, tokens: int, *, weight: int = 1, load_tokens: int = 0) -> Ticket:
        """For a request of so many tokens at most, besides those that its adapter's load costs. The limiter
        gives it its place in its tenant's line."""
        index = class_index(service_class)
        floor = self._scheduler.floor(index, self._clock())
        return Ticket(
            index,
            tokens + load_tokens,
            floor,
            weight=weight,
            pool=self._pool,
            load_tokens=load_tokens,
        )

    async def enter(self, ask: Ask) -> Place:
        """Waits for room, and takes a place for each choice.

        Raises `Unavailable` (503) when the queue is full or the wait would be too long, `Timeout` (504) when
        it was; both with `Retry-After`.
        """
        began = self._clock()
        longest = self._limits.max_wait_s
        wait_s = longest if ask.wait_s is None else max(0.0, min(ask.wait_s, longest))
        waiter = self._waiter(ask, began, began + wait_s)
        try:
            (self._scheduler.enter_again if ask.again else self._scheduler.enter)(waiter, began)
        except TurnedAway as refusal:
            self._forget(waiter)
            SHED.labels(refusal.bound).inc()
            error = _refusal(refusal)
            error.refusal = self._scheduler.bounds.refusal(refusal.bound, waiter, refusal.forecast_s)
            raise error from None
        self._pump()
        if not waiter.reply.done():
            ask.ticket.held_back = self._scheduler.held_back(waiter)
            if self._sharing is not None and self._scheduler.presses(waiter):
                self._sharing.poke()
            await self._wait(waiter, wait_s)
        if not waiter.reply.result():
            error = self._too_late(waiter, wait_s)
            self._forget(waiter)
            raise error
        WAIT_BY_CLASS[waiter.ticket.index].observe(self._clock() - began)
        return Place(self, waiter)

    async def run(self) -> None:
        """What happens by itself, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tick())
            if self._sharing is not None:
                group.create_task(self._sharing.run(lambda: self._places, self._pump))

    async def _tick(self) -> None:
        while True:
            self._scheduler.age(self._clock())
            self._pump()
            for name, lane in zip(CLASSES, self._scheduler.lanes, strict=True):
                WAITING.labels(name).set(lane.items)
                WAITING_TOKENS.labels(name).set(lane.tokens)
            WAITING_BYTES.set(self._scheduler.bounds.all.num_bytes)
            RUNNING.set(self._scheduler.used)
            await asyncio.sleep(TICK_S)

    def _waiter(self, ask: Ask, now: float, deadline: float) -> _Waiter:
        local = ask.ticket.tag is None
        if local:
            self._lines.enter(ask.tenant, ask.ticket)
        return _Waiter(
            tenant=ask.tenant,
            ticket=ask.ticket,
            places=ask.places,
            num_bytes=ask.num_bytes,
            arrived=now,
            deadline=deadline,
            local=local,
            reply=asyncio.get_running_loop().create_future(),
        )

    async def _wait(self, waiter: _Waiter, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await waiter.reply
        except TimeoutError:
            error = self._too_late(waiter, wait_s)
            self._withdraw(waiter)
            raise error from None
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise

    def _pump(self) -> None:
        """Lets go whoever may. One whose task was cancelled in this moment gives its places back."""
        now = self._clock()
        while (entry := self._scheduler.next(now)) is not None:
            assert isinstance(entry, _Waiter)
            if entry.reply.done():
                self._give_back(entry, None)
            else:
                entry.reply.set_result(True)
        for late in self._scheduler.expired:
            assert isinstance(late, _Waiter)
            if not late.reply.done():
                late.reply.set_result(False)
        self._scheduler.expired.clear()
        if self._sharing is not None:
            self._sharing.note_change()

    def _withdraw(self, waiter: _Waiter) -> None:
        """The waiter gives up; if its turn came in the same moment, its places go back."""
        if waiter.taken:
            self._release(waiter, None)
        else:
            self._scheduler.withdraw(waiter, self._clock())
            self._forget(waiter)
            self._pump()

    def _release(self, waiter: _Waiter, used: int | None) -> None:
        self._give_back(waiter, used)
        self._pump()

    def _give_back(self, waiter: _Waiter, used: int | None) -> None:
        waiter.ticket.served = used is not None
        self._forget(waiter, used or 0)
        self._scheduler.leave(waiter, used or 0, self._clock())

    def _forget(self, waiter: _Waiter, used: int = 0) -> None:
        """Its tenant's line in this process, if it stood there. Idempotent."""
        if waiter.local:
            waiter.local = False
            self._lines.settle(waiter.tenant, waiter.ticket, used)
            if not waiter.ticket.served:
                waiter.ticket.tag = None

    def _too_late(self, waiter: _Waiter, waited_s: float) -> ApiError:
        SHED.labels("deadline").inc()
        forecast = self._scheduler.admission.forecast_s(waiter)
        error = Timeout(
            f"No replica had room within {waited_s:.1f} s.",
            code="queue_timeout",
            headers=retry_headers(max(UNKNOWN_S, forecast or 0.0)),
        )
        error.refusal = self._scheduler.bounds.refusal("deadline", waiter, forecast)
        return error


def _refusal(refusal: TurnedAway) -> ApiError:
    if refusal.bound == "forecast":
        message = f"The wait would be about {refusal.forecast_s or 0.0:.1f} s, which is past the deadline."
        return Unavailable(message, retry_after_s=refusal.retry_after_s, code="queue_too_long")
    whose = "Too many of your requests are waiting." if "tenant" in refusal.bound else "The queue is full."
    return Unavailable(whose, retry_after_s=refusal.retry_after_s, code="queue_full")
