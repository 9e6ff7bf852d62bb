"""While Redis can't be reached, a worker keeps to its own share of each limit.

The share is the limit divided by twice the workers of the deployment, so that all of them together let in
half of it, in buckets that begin full (at least one request at a time, whatever `max_parallel` is). Of a
budget it is a part of what the charges left of it when the outage began.

The end is without a burst: what was let in meanwhile is charged to the buckets in Redis before anyone is let
in by them again, and what still runs becomes a reservation there, with its places.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from gateway.limits.amounts import NO_TOKENS
from gateway.limits.asks import UNSEEDED, Store
from gateway.limits.levels import Bucket, Plan
from gateway.limits.local_store import LocalStore
from gateway.limits.metrics import LOCAL
from gateway.limits.redis_store import RedisStore
from gateway.limits.reservation import Reservation
from gateway.redis import RedisKey

log = structlog.get_logger(__name__)

CAUTION: Final = 2
"""All workers together let in one part in so many of each limit: their number is known by hearsay, and what
was let in before the outage is not known to any of them."""


class Outage:
    """One per worker. `local` is None while Redis answers."""

    def __init__(
        self,
        shared: RedisStore,
        held: Mapping[str, Reservation],
        *,
        lease_s: float,
        workers: Callable[[], int],
        seed: Callable[[Plan, Store], Awaitable[None]],
    ) -> None:
        self.local: LocalStore | None = None
        self._shared = shared
        self._held = held
        self._lease_s = lease_s
        self._workers = workers
        self._seed = seed
        self._settled = asyncio.Event()
        self._settled.set()

    async def turned(self) -> None:
        """Waits while what was let in meanwhile is being charged: a moment, at the end of an outage."""
        if not self._settled.is_set():
            await self._settled.wait()

    def begin(self) -> None:
        if self.local is not None:
            return
        divisor = CAUTION * max(1, self._workers())
        running = self._running()
        self.local = LocalStore(
            lease_s=self._lease_s, divisor=divisor, running_elsewhere=lambda key: self._still(running, key)
        )
        LOCAL.set(1)
        log.warning("limits_not_shared", share=f"1/{divisor}")

    async def end(self) -> None:
        """Back to Redis, once it has been charged. Raises `Unavailable`: the outage goes on."""
        if self.local is None:
            return
        self._settled.clear()
        try:
            await self._take_over(self.local)
            self.local = None
            LOCAL.set(0)
            log.info("limits_shared_again")
        finally:
            self._settled.set()

    async def _take_over(self, local: LocalStore) -> None:
        for reservation in [each for each in self._held.values() if each.local]:
            await self.adopt(reservation)
            await local.settle(reservation.plan, reservation.id, NO_TOKENS, 0)
        by_tenant: dict[str, list[tuple[Bucket, int]]] = defaultdict(list)
        for bucket, missing in local.owed():
            by_tenant[bucket.key.partition(":")[0]].append((bucket, missing))
        for owed in by_tenant.values():
            await self._shared.charge(owed)
            local.forget(owed)

    async def adopt(self, reservation: Reservation) -> None:
        """Redis does not know it, and it runs: so it is let in, whatever the limits say."""
        plan, reserved = reservation.plan, reservation.reserved
        await self._shared.settle(plan, reservation.id, NO_TOKENS, 0)  # of an attempt that broke off
        await self._shared.admit(plan, reservation.id, forced=True)
        if reserved:
            ask = (plan, reservation.id, reservation.tokens, reservation.money)
            answer = await self._shared.reserve(*ask, forced=True)
            if answer.state == UNSEEDED:
                await self._seed(plan, self._shared)
                await self._shared.reserve(*ask, forced=True)
        if not reservation.holds_place:
            await self._shared.leave_place(plan, reservation.id)
        reservation.local = False

    def _running(self) -> dict[RedisKey, set[str]]:
        """Requests that hold a place in Redis, by lease."""
        found: dict[RedisKey, set[str]] = defaultdict(set)
        for reservation in self._held.values():
            if not reservation.local and reservation.holds_place:
                for lease in reservation.plan.all_leases:
                    found[lease.key].add(reservation.request_id)
        return found

    def _still(self, running: Mapping[RedisKey, set[str]], key: RedisKey) -> int:
        """How many of them run yet."""
        return sum(name in self._held and not self._held[name].local for name in running.get(key, ()))
