"""Keeps one worker's part of the places: reports to the others, and says what to do when they can't be
reached.

Redis away: until its lease is over, the worker goes on with what it had. After that it keeps to an equal part
of all places by the number of workers it last heard of. All together then use no more than there is; if only
some can't reach Redis, the others take what those gave up by silence, and what is too much is sent back by
the replicas as `replica_busy`. Back again, the first report says what is used, and more is given only out of
what is free.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import structlog

from gateway.errors import Unavailable
from gateway.queueing.exchange import Exchange
from gateway.queueing.metrics import ALONE, EXCHANGES
from gateway.queueing.places import Loads, Places, Reply
from gateway.queueing.scheduler import SPARE, Scheduler

log = structlog.get_logger(__name__)

POLL_S: Final = 0.01
"""Between reports while something waits; it also bounds how long a place that another worker gave back lies
idle."""
BEAT_S: Final = 0.25
"""Between reports otherwise."""
PAUSE_S: Final = 0.002
"""Least time between two reports."""
RETRY_S: Final = 0.5
REJOIN_S: Final = 2.0
"""For so long one that was alone asks for no more than its part: the others may not have said what they
use."""
LEASE_PART: Final = 0.9
"""Of its lease, the part that a worker relies on: the clocks are two."""


class Sharing:
    """One per worker. `heard` is told what others have at replicas."""

    def __init__(
        self,
        scheduler: Scheduler,
        exchange: Exchange,
        *,
        workers: int,
        loads: Callable[[], Loads],
        heard: Callable[[Loads], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._exchange = exchange
        self._least_workers = self._workers = workers  # more once they are heard of
        self._loads = loads
        self._heard = heard
        self._clock = clock
        self._sequence = 0
        self._holds_until = float("-inf")
        self._alone = False
        self._rejoins_until = float("-inf")
        self._poked = asyncio.Event()

    @property
    def workers(self) -> int:
        return self._workers

    def poke(self) -> None:
        """Something changed that can't wait for the next beat."""
        self._poked.set()

    def note_change(self) -> None:
        """A request came or went: places to have at hand are used up, or some that others wait for are
        idle."""
        scheduler = self._scheduler
        idle = scheduler.limit - scheduler.used
        if idle < 1:
            pressing = not scheduler.waiting
        else:
            pressing = idle > 2 * SPARE or scheduler.elsewhere.said.wanted > 0
        if pressing:
            self._poked.set()

    async def run(self, places: Callable[[], Places], changed: Callable[[], None]) -> None:
        """Until cancelled; `changed` is called when the limits may have."""
        try:
            while True:
                reached = await self.report(places())
                changed()
                await self._until_next(reached)
        finally:
            await self._leave()

    async def report(self, places: Places) -> bool:
        """One round; whether the others could be reached."""
        self._sequence += 1
        sent_at = self._clock()
        report = self._scheduler.report(self._sequence, sent_at, self._loads())
        if self._alone or sent_at < self._rejoins_until:
            report.want = min(report.want, max(0, self._part(places.capacity) - report.used))
            report.spare = report.want_owed = 0
        try:
            reply = await self._exchange.report(report, places)
        except Unavailable:
            self._scheduler.take_back(report)
            self._miss(places)
            return False
        if reply is not None:
            self._hear(reply, sent_at)
        return True

    def _hear(self, reply: Reply, sent_at: float) -> None:
        self._holds_until = sent_at + LEASE_PART * self._exchange.lease_s
        rejoining = self._alone or sent_at < self._rejoins_until
        self._workers = max(self._workers if rejoining else self._least_workers, reply.workers)
        self._scheduler.apply(reply, self._clock())
        self._heard(reply.loads)
        EXCHANGES.labels("heard").inc()
        if self._alone:
            self._alone = False
            self._rejoins_until = self._clock() + REJOIN_S
            ALONE.set(0)
            log.info("queue_shared_again", workers=reply.workers)

    def _miss(self, places: Places) -> None:
        EXCHANGES.labels("missed").inc()
        if self._clock() < self._holds_until:
            return
        limit = self._part(places.capacity)
        self._scheduler.set_limits(limit, limit + places.margin // self._workers)
        if not self._alone:
            self._alone = True
            ALONE.set(1)
            log.warning("queue_not_shared", places=limit, workers=self._workers)

    def _part(self, capacity: int) -> int:
        return max(1, capacity // self._workers)

    async def _until_next(self, reached: bool) -> None:
        if not reached:
            await asyncio.sleep(RETRY_S)
            return
        await asyncio.sleep(PAUSE_S)
        try:
            async with asyncio.timeout(POLL_S if self._scheduler.waiting else BEAT_S):
                await self._poked.wait()
        except TimeoutError:
            pass
        self._poked.clear()

    async def _leave(self) -> None:
        try:
            await self._exchange.leave()
        except Unavailable:
            log.info("queue_left_to_its_lease")
