"""The one place where requests wait: in front of the replicas, fair over tenants by tokens.

Each tenant has a virtual time that grows by the tokens of what it was given (start-time fair queueing, Goyal
et al. 1996, with a tenant as the flow). A free place goes to the waiting tenant whose time is least, so a
tenant that floods waits behind its own requests. Tokens are an estimate when a request starts and are
corrected when it ends. Bounded in items, per tenant and in all; each wait has a limit.

Nothing that runs is taken away, so fairness among those that wait isn't enough: a tenant with many long
requests would hold every place for minutes. So a tenant takes no more than `FREE_SHARE` times the places that
it leaves free (dynamic thresholds, Choudhury and Hahne 1998): one alone gets seven eighths, and whoever comes
next finds a place. A request takes a place for each choice, since each runs as a sequence of its own.

Owned by one worker's event loop; nothing here blocks or locks.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from dataclasses import dataclass, field
from itertools import count

from gateway.errors import Timeout, Unavailable, retry_headers
from gateway.principal import TenantId
from gateway.queueing.metrics import QUEUE_WAIT, RUNNING, SHED, WAITING

IDLE_TENANTS = 4_096
"""Tenants whose virtual time is remembered while they have nothing waiting; then those that are behind go."""

FREE_SHARE = 7
"""Places that a tenant may hold for each one that is left free."""


@dataclass(slots=True, eq=False)
class _Waiter:
    tokens: int
    weight: int
    future: asyncio.Future[None]


@dataclass(slots=True)
class _Flow:
    """One tenant's requests. `ticket` names its one valid entry in the heap."""

    time: float = 0.0
    held: int = 0  # places
    waiting: deque[_Waiter] = field(default_factory=deque)
    ticket: int = -1


class Place:
    """The right to have one request at a replica. Given back once, with the tokens really used."""

    def __init__(self, queue: FairQueue, tenant: TenantId, waiter: _Waiter) -> None:
        self._queue: FairQueue | None = queue
        self.tenant = tenant
        self.tokens = waiter.tokens
        self.weight = waiter.weight

    def leave(self, used: int | None = None) -> None:
        """Idempotent. `used` None: the request never ran, and its tenant is charged nothing."""
        if self._queue is not None:
            queue, self._queue = self._queue, None
            queue._release(self.tenant, self.weight, self.tokens - (used or 0))


class FairQueue:
    """`capacity` is how many sequences this worker may have at replicas; it moves with their number and
    health. The last request let in may have more choices than places are left."""

    def __init__(self, *, capacity: int, max_items: int, max_items_tenant: int, max_wait_s: float) -> None:
        self._capacity = capacity
        self._max_items = max_items
        self._max_items_tenant = max_items_tenant
        self._max_wait_s = max_wait_s
        self._flows: dict[TenantId, _Flow] = {}
        self._heap: list[tuple[float, int, TenantId]] = []
        self._tickets = count()
        self._time = 0.0
        self._running = 0
        self._waiting = 0

    @property
    def running(self) -> int:
        """Places taken."""
        return self._running

    @property
    def waiting(self) -> int:
        return self._waiting

    def set_capacity(self, capacity: int) -> None:
        self._capacity = capacity
        self._dispatch()

    async def enter(
        self,
        tenant: TenantId,
        tokens: int,
        *,
        weight: int = 1,
        wait_s: float | None = None,
        again: bool = False,
    ) -> Place:
        """Waits for room, and takes `weight` places. `again` puts a request that a replica turned away before
        its tenant's others.

        Raises `Unavailable` (503) when the queue is full, `Timeout` (504) when the wait is over; both with
        `Retry-After`.
        """
        flow = self._flows.get(tenant) or self._new_flow(tenant)
        limit_s = self._max_wait_s if wait_s is None else max(0.0, min(wait_s, self._max_wait_s))
        if not again:
            self._refuse_when_full(flow)
        loop = asyncio.get_running_loop()
        waiter = _Waiter(tokens, weight, loop.create_future())
        began = loop.time()
        (flow.waiting.appendleft if again else flow.waiting.append)(waiter)
        self._note_waiting(1)
        self._activate(tenant, flow)
        self._dispatch()
        try:
            async with asyncio.timeout(limit_s):
                await waiter.future
        except TimeoutError:
            self._withdraw(tenant, flow, waiter)
            SHED.labels("wait").inc()
            raise Timeout(
                f"No replica had room within {limit_s:.0f} s.",
                code="queue_timeout",
                headers=retry_headers(1.0),
            ) from None
        except asyncio.CancelledError:
            self._withdraw(tenant, flow, waiter)
            raise
        QUEUE_WAIT.observe(loop.time() - began)
        return Place(self, tenant, waiter)

    def _refuse_when_full(self, flow: _Flow) -> None:
        if self._waiting >= self._max_items:
            SHED.labels("total").inc()
            raise Unavailable("The queue is full.", code="queue_full")
        if len(flow.waiting) >= self._max_items_tenant:
            SHED.labels("tenant").inc()
            raise Unavailable("Too many of your requests are waiting.", code="queue_full")

    def _dispatch(self) -> None:
        over: list[tuple[float, int, TenantId]] = []  # hold their share: few, since each holds several places
        while self._running < self._capacity and self._heap:
            entry = heapq.heappop(self._heap)
            _, ticket, tenant = entry
            flow = self._flows.get(tenant)
            if flow is None or flow.ticket != ticket or not flow.waiting:
                continue
            if self._holds_its_share(flow):
                over.append(entry)
                continue
            self._let_in(tenant, flow, entry[0])
        for entry in over:
            heapq.heappush(self._heap, entry)

    def _holds_its_share(self, flow: _Flow) -> bool:
        """Whether its next request would leave too little free. The first of a tenant never does."""
        weight = flow.waiting[0].weight
        left = self._capacity - self._running - weight
        return flow.held > 0 and flow.held + weight > FREE_SHARE * left

    def _let_in(self, tenant: TenantId, flow: _Flow, time: float) -> None:
        waiter = flow.waiting.popleft()
        flow.ticket = -1
        self._note_waiting(-1)
        if not waiter.future.done():  # done = cancelled, and about to be withdrawn
            self._time = max(self._time, time)
            flow.time = max(flow.time, self._time) + waiter.tokens
            flow.held += waiter.weight
            self._note_running(waiter.weight)
            waiter.future.set_result(None)
        self._activate(tenant, flow)

    def _activate(self, tenant: TenantId, flow: _Flow) -> None:
        """Gives a tenant with something waiting its one entry in the heap."""
        if flow.waiting and flow.ticket < 0:
            flow.time = max(flow.time, self._time)
            flow.ticket = next(self._tickets)
            heapq.heappush(self._heap, (flow.time, flow.ticket, tenant))

    def _withdraw(self, tenant: TenantId, flow: _Flow, waiter: _Waiter) -> None:
        """The waiter gives up; if a place came in the same moment, it goes back."""
        if waiter in flow.waiting:
            flow.waiting.remove(waiter)
            self._note_waiting(-1)
            if not flow.waiting:
                flow.ticket = -1
        elif not waiter.future.cancelled():
            self._release(tenant, waiter.weight, waiter.tokens)

    def _release(self, tenant: TenantId, weight: int, unused: int) -> None:
        self._note_running(-weight)
        flow = self._flows[tenant]  # kept while it holds a place
        flow.held -= weight
        flow.time = max(0.0, flow.time - unused)
        self._dispatch()

    def _new_flow(self, tenant: TenantId) -> _Flow:
        if len(self._flows) >= IDLE_TENANTS:
            idle = [
                t
                for t, flow in self._flows.items()
                if not flow.waiting and not flow.held and flow.time <= self._time
            ]
            for each in idle:
                del self._flows[each]
        flow = self._flows[tenant] = _Flow(time=self._time)
        return flow

    def _note_waiting(self, step: int) -> None:
        self._waiting += step
        WAITING.inc(step)

    def _note_running(self, step: int) -> None:
        self._running += step
        RUNNING.inc(step)
