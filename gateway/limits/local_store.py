"""The twin of the scripts, in one process: while Redis is away it gives a worker its share of each limit, and
the scripts are held equal to it.

`divisor` says which share: buckets and places are divided by it, and of a budget what is left of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.errors import Unavailable
from gateway.limits.amounts import NO_TOKENS, Tokens
from gateway.limits.asks import ADMITTED, ENDED, REFUSED, UNSEEDED, Answer, Left, Looked, Place
from gateway.limits.levels import Bucket, Counter, Lease, Plan
from gateway.redis import RedisKey

PERIOD_US: Final = 60_000_000
MOST_KEPT: Final = 100_000
"""Buckets, leases and counters; beyond it nothing new is let in."""


@dataclass(slots=True)
class _Money:
    settled: int
    held: dict[str, tuple[int, int]] = field(default_factory=dict)  # id -> (until, units)

    def reserved(self, now: int) -> int:
        return sum(units for until, units in self.held.values() if until > now)

    def sweep(self, now: int) -> None:
        self.held = {id: each for id, each in self.held.items() if each[0] > now}


@dataclass(slots=True)
class _Held:
    """A reservation: what each bucket gave, in microseconds."""

    door: tuple[int, ...]
    later: tuple[int, ...] | None = None


@dataclass(slots=True)
class _Weighed:
    which: int = -1
    available: int = 0
    wait_us: int = 0

    @property
    def refuses(self) -> bool:
        return self.which >= 0


class LocalStore:
    def __init__(
        self,
        *,
        lease_s: float,
        divisor: int = 1,
        clock_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
        running_elsewhere: Callable[[RedisKey], int] = lambda _: 0,
    ) -> None:
        """`running_elsewhere`: places of a lease that this worker holds by other means."""
        self._lease_us = int(lease_s * 1e6)
        self._divisor = divisor
        self._now = clock_us
        self._running_elsewhere = running_elsewhere
        self._full_at: dict[RedisKey, int] = {}
        self._buckets: dict[RedisKey, Bucket] = {}
        self._leases: dict[RedisKey, dict[str, int]] = {}
        self._money: dict[RedisKey, _Money] = {}
        self._reservations: dict[RedisKey, _Held] = {}

    async def admit(self, plan: Plan, id: str, *, forced: bool = False) -> Answer:
        self._make_room()
        now, name = self._now(), plan.tenant.key("reservation", id)
        assert name not in self._reservations
        costs = self._costs(plan.door_buckets, NO_TOKENS)
        found = self._weigh(plan.door_buckets, costs, plan.door_leases, now)
        self._weigh_money(found, plan, 0, now, len(plan.door_buckets) + len(plan.door_leases))
        if found.refuses and not forced:
            return self._answer(REFUSED, plan.door_buckets, now, found)
        self._take(plan.door_buckets, costs, now)
        self._enter(plan.door_leases, id, now)
        self._reservations[name] = _Held(costs)
        return self._answer(ADMITTED, plan.door_buckets, now)

    async def reserve(
        self,
        plan: Plan,
        id: str,
        tokens: Tokens,
        money: int,
        place: Place | None = None,
        *,
        forced: bool = False,
    ) -> Answer:
        """Gives no tag: what waits in this worker only has its line there."""
        now, name = self._now(), plan.tenant.key("reservation", id)
        held = self._reservations.get(name)
        if held is None:
            return self._answer(ENDED, (), now)
        assert held.later is None
        before = len(plan.buckets) + len(plan.leases)
        for at, counter in enumerate(plan.counters):
            if counter.key not in self._money:
                return self._answer(UNSEEDED, (), now, _Weighed(before + at))
        costs = self._costs(plan.buckets, tokens)
        found = self._weigh(plan.buckets, costs, plan.leases, now)
        self._weigh_money(found, plan, money, now, before)
        if found.refuses and not forced:
            self._take(plan.door_buckets, [-cost for cost in held.door], now)
            self._leave(plan.door_leases, id)
            del self._reservations[name]
            return self._answer(REFUSED, plan.all_buckets, now, found)
        held.later = costs
        self._take(plan.buckets, costs, now)
        self._enter(plan.leases, id, now)
        for counter in plan.counters:
            self._money[counter.key].sweep(now)
            self._money[counter.key].held[id] = (now + self._lease_us, money)
        return self._answer(ADMITTED, plan.all_buckets, now)

    async def settle(
        self, plan: Plan, id: str, tokens: Tokens, money: int, place: Place | None = None
    ) -> tuple[bool, float | None]:
        now = self._now()
        held = self._reservations.pop(plan.tenant.key("reservation", id), None)
        if held is None:
            return False, None
        if held.later is not None:
            used = self._costs(plan.buckets, tokens)
            self._take(plan.buckets, [u - r for u, r in zip(used, held.later, strict=True)], now)
        self._leave(plan.all_leases, id)
        for counter in plan.counters:
            kept = self._money.get(counter.key)
            if kept is not None:
                kept.held.pop(id, None)
                kept.sweep(now)
                kept.settled += money
        return True, None

    async def renew(self, plan: Plan, id: str, *, places: bool) -> bool:
        now = self._now()
        held = self._reservations.get(plan.tenant.key("reservation", id))
        if held is None:
            return False
        if places:
            self._enter(plan.door_leases, id, now)
            self._enter(plan.leases if held.later is not None else (), id, now)
        for counter in plan.counters:
            kept = self._money.get(counter.key)
            if kept is not None and id in kept.held:
                kept.held[id] = (now + self._lease_us, kept.held[id][1])
        return True

    async def look(self, plan: Plan, tokens: Tokens = NO_TOKENS, money: int = 0) -> Looked:
        now = self._now()
        buckets, leases = plan.all_buckets, plan.all_leases
        found = self._weigh(buckets, self._costs(buckets, tokens), leases, now)
        self._weigh_money(found, plan, money, now, len(buckets) + len(leases))
        state = REFUSED if found.refuses else ADMITTED
        for at, counter in enumerate(plan.counters):
            if counter.key not in self._money:
                state, found.which = UNSEEDED, len(buckets) + len(leases) + at
        return Looked(
            self._answer(state, buckets, now, found),
            tuple(self._running(each, now) for each in leases),
            tuple(self._spent(each, now) for each in plan.counters),
        )

    async def seed(self, counter: Counter, units: int) -> tuple[int, int]:
        """Of what is left, this process may spend its share."""
        left = max(0, counter.limit - units)
        settled = units + left - left // self._divisor
        kept = self._money.setdefault(counter.key, _Money(settled))
        kept.settled = max(kept.settled, settled)
        kept.sweep(self._now())
        return kept.settled, kept.reserved(self._now())

    async def charge(self, taken: Sequence[tuple[Bucket, int]]) -> None:
        now = self._now()
        for bucket, amount in taken:
            self._take((bucket,), [self._cost(amount, bucket.limit)], now)

    async def leave_place(self, plan: Plan, id: str) -> None:
        self._leave(plan.all_leases, id)

    def owed(self) -> list[tuple[Bucket, int]]:
        """What is missing from each bucket now, in its own unit, rounded up."""
        now, found = self._now(), []
        for key, full_at in self._full_at.items():
            bucket = self._buckets[key]
            missing = math.ceil((full_at - now) * bucket.limit / (PERIOD_US * self._divisor))
            if missing > 0:
                found.append((bucket, missing))
        return found

    def forget(self, taken: Iterable[tuple[Bucket, int]]) -> None:
        """They are full again: another store has been charged."""
        for bucket, _ in taken:
            self._keep(bucket, 0, self._now())

    def _cost(self, amount: int, limit: int) -> int:
        return math.ceil(amount * PERIOD_US * self._divisor / limit)

    def _costs(self, buckets: Sequence[Bucket], tokens: Tokens) -> tuple[int, ...]:
        return tuple(self._cost(tokens.of(each.meter), each.limit) for each in buckets)

    def _full(self, bucket: Bucket, now: int) -> int:
        return max(self._full_at.get(bucket.key, now), now)

    def _left_of(self, bucket: Bucket, now: int) -> int:
        debt = self._full(bucket, now) - now
        return max(0, math.floor((PERIOD_US - debt) * bucket.limit / (PERIOD_US * self._divisor) + 1e-9))

    def _weigh(
        self, buckets: Sequence[Bucket], costs: Sequence[int], leases: Sequence[Lease], now: int
    ) -> _Weighed:
        found = _Weighed()
        for at, (bucket, cost) in enumerate(zip(buckets, costs, strict=True)):
            pause = self._full(bucket, now) + min(cost, PERIOD_US) - PERIOD_US - now
            if pause > 0 and pause > found.wait_us:
                found = _Weighed(at, self._left_of(bucket, now), pause)
        for at, lease in enumerate(leases):
            running, limit = self._running(lease, now), max(1, lease.limit // self._divisor)
            if running >= limit and not found.refuses:
                found = _Weighed(len(buckets) + at, max(0, limit - running))
        return found

    def _weigh_money(self, found: _Weighed, plan: Plan, money: int, now: int, before: int) -> None:
        for at, counter in enumerate(plan.counters):
            kept = self._money.get(counter.key)
            if kept is None or not counter.hard:
                continue
            left = counter.limit - kept.settled - kept.reserved(now)
            if money > left or (money == 0 and left <= 0):
                found.which, found.available, found.wait_us = before + at, max(0, left), 0
                return

    def _running(self, lease: Lease, now: int) -> int:
        own = sum(until > now for until in self._leases.get(lease.key, {}).values())
        return own + self._running_elsewhere(lease.key)

    def _spent(self, counter: Counter, now: int) -> tuple[int, int] | None:
        kept = self._money.get(counter.key)
        return None if kept is None else (kept.settled, kept.reserved(now))

    def _take(self, buckets: Sequence[Bucket], costs: Sequence[int], now: int) -> None:
        for bucket, cost in zip(buckets, costs, strict=True):
            self._keep(bucket, self._full(bucket, now) + cost, now)

    def _keep(self, bucket: Bucket, full_at: int, now: int) -> None:
        if full_at <= now:
            self._full_at.pop(bucket.key, None)
            self._buckets.pop(bucket.key, None)
        else:
            self._full_at[bucket.key] = full_at
            self._buckets[bucket.key] = bucket

    def _enter(self, leases: Sequence[Lease], id: str, now: int) -> None:
        for lease in leases:
            self._leases.setdefault(lease.key, {})[id] = now + self._lease_us

    def _leave(self, leases: Sequence[Lease], id: str) -> None:
        for lease in leases:
            held = self._leases.get(lease.key, {})
            held.pop(id, None)
            if not held:
                self._leases.pop(lease.key, None)

    def _answer(
        self, state: int, buckets: Sequence[Bucket], now: int, found: _Weighed | None = None
    ) -> Answer:
        found = found or _Weighed()
        left = tuple(Left(self._left_of(each, now), self._full(each, now) - now) for each in buckets)
        return Answer(state, None, found.which, found.available, found.wait_us, left)

    def _make_room(self) -> None:
        if len(self._full_at) + len(self._leases) + len(self._money) < MOST_KEPT:
            return
        now = self._now()
        for key in [key for key, full_at in self._full_at.items() if full_at <= now]:
            del self._full_at[key], self._buckets[key]
        if len(self._full_at) + len(self._leases) + len(self._money) >= MOST_KEPT:
            raise Unavailable("The limiter cannot answer now. Try again shortly.")
