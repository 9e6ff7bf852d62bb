"""The limits in Redis: one script each, written as lists (`claims.lua`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from redis.asyncio import Redis

from gateway.errors import Unavailable
from gateway.limits.amounts import NO_TOKENS, Tokens, join, split
from gateway.limits.asks import ADMITTED, Answer, Left, Looked, Place
from gateway.limits.levels import Bucket, Counter, Lease, Plan, today
from gateway.principal import TenantId
from gateway.redis import RedisKey, Script, TenantKeys, redis_errors

REMEMBER_MS: Final = 15 * 60 * 1000
"""A reservation not renewed for this long is forgotten; settling it then gives nothing back."""

CALL_TIMEOUT_S: Final = 3.0
"""For one script, waiting for a connection included."""

COUNTER_KEPT_DAYS: Final = 2
"""After its period, so that late ends find it."""

_HERE = Path(__file__).parent
_CLAIMS = _HERE / "claims.lua"
_SHARE = _HERE.parent / "queueing" / "share.lua"
ADMIT: Final = Script.load(_CLAIMS, _HERE / "admit.lua")
RESERVE: Final = Script.load(_CLAIMS, _SHARE, _HERE / "reserve.lua")
SETTLE: Final = Script.load(_CLAIMS, _SHARE, _HERE / "settle.lua")
RENEW: Final = Script.load(_CLAIMS, _HERE / "renew.lua")
LOOK: Final = Script.load(_CLAIMS, _HERE / "look.lua")
SEED: Final = Script.load(_CLAIMS, _HERE / "seed.lua")
CHARGE: Final = Script.load(_CLAIMS, _HERE / "charge.lua")


def reservation_key(keys: TenantKeys, id: str) -> RedisKey:
    """Where a request's reservation is while it runs."""
    return keys.key("reservation", id)


class _Lists:
    """Keys and arguments of a call, in the order in which its script reads them."""

    def __init__(self, keys: Iterable[RedisKey], args: Iterable[int | str | float]) -> None:
        self.keys = list(keys)
        self.args = list(args)

    def buckets(self, buckets: Sequence[Bucket], tokens: Tokens | None) -> None:
        """`tokens` None: nothing is taken from them."""
        self.args.append(len(buckets))
        for each in buckets:
            self.keys.append(each.key)
            self.args += (each.limit, 0 if tokens is None else tokens.of(each.meter))

    def leases(self, leases: Sequence[Lease]) -> None:
        self.args.append(len(leases))
        for each in leases:
            self.keys.append(each.key)
            self.args.append(each.limit)

    def counters(self, counters: Sequence[Counter]) -> None:
        self.args.append(len(counters))
        for each in counters:
            self.keys += (each.key, each.holds)
            self.args += (*split(each.limit), int(each.hard))

    def names(self, keys: Sequence[RedisKey]) -> None:
        self.args.append(len(keys))
        self.keys += keys

    def place(self, place: Place | None, *more: int | float) -> None:
        if place is not None:
            self.keys.append(place.line)
            self.args += more


class RedisStore:
    """`Store` (`asks.py`), shared by all workers of all gateways."""

    def __init__(self, redis: Redis, *, lease_s: float) -> None:
        self._redis = redis
        self._lease_ms = int(lease_s * 1000)

    async def admit(self, plan: Plan, id: str, *, forced: bool = False) -> Answer:
        keys = plan.tenant
        lists = _Lists(
            [reservation_key(keys, id), keys.epoch], [id, self._lease_ms, REMEMBER_MS, int(forced)]
        )
        lists.buckets(plan.door_buckets, NO_TOKENS)
        lists.leases(plan.door_leases)
        lists.counters(plan.counters)
        return _answer(await self._call(ADMIT, lists), len(plan.door_buckets))

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
        keys = plan.tenant
        lists = _Lists(
            [reservation_key(keys, id), keys.epoch], [id, self._lease_ms, int(forced), *split(money)]
        )
        lists.buckets(plan.buckets, tokens)
        lists.leases(plan.leases)
        lists.counters(plan.counters)
        lists.buckets(plan.door_buckets, None)
        lists.names([each.key for each in plan.door_leases])
        if place is not None:
            lists.place(place, place.floor, place.length)
        found = await self._call(RESERVE, lists)
        return _answer(found, len(plan.all_buckets), tagged=place is not None)

    async def settle(
        self, plan: Plan, id: str, tokens: Tokens, money: int, place: Place | None = None
    ) -> tuple[bool, float | None]:
        lists = _Lists([reservation_key(plan.tenant, id)], [id, *split(money)])
        lists.buckets(plan.buckets, tokens)
        lists.names([each.key for each in plan.all_leases])
        lists.args.append(len(plan.counters))
        for each in plan.counters:
            lists.keys += (each.key, each.holds)
        if place is not None:
            lists.place(place, place.length, int(place.served))
        ended, credit = await self._call(SETTLE, lists)
        return int(ended) == 1, float(credit) if credit else None

    async def renew(self, plan: Plan, id: str, *, places: bool) -> bool:
        lists = _Lists([reservation_key(plan.tenant, id)], [id, self._lease_ms, REMEMBER_MS])
        lists.names([each.key for each in plan.door_leases] if places else [])
        lists.names([each.key for each in plan.leases] if places else [])
        lists.names([each.holds for each in plan.counters])
        return int(await self._call(RENEW, lists)) == 1

    async def look(self, plan: Plan, tokens: Tokens = NO_TOKENS, money: int = 0) -> Looked:
        lists = _Lists([plan.tenant.epoch], split(money))
        lists.buckets(plan.all_buckets, tokens)
        lists.leases(plan.all_leases)
        lists.counters(plan.counters)
        found = await self._call(LOOK, lists)
        num_buckets, num_leases = len(plan.all_buckets), len(plan.all_leases)
        at = 6 + 2 * num_buckets
        running = tuple(int(each) for each in found[at : at + num_leases])
        parts = [int(each) for each in found[at + num_leases :]]
        spent = tuple(
            None if w < 0 else (join(w, p), join(ow, op))
            for w, p, ow, op in zip(*[iter(parts)] * 4, strict=True)
        )
        return Looked(_answer(found[:at], num_buckets), running, spent)

    async def seed(self, counter: Counter, units: int) -> tuple[int, int]:
        days = (counter.end.date() - today()).days + COUNTER_KEPT_DAYS
        lists = _Lists([counter.key, counter.holds], [*split(units), max(1, days) * 86_400_000])
        w, p, ow, op = (int(each) for each in await self._call(SEED, lists))
        return join(w, p), join(ow, op)

    async def charge(self, taken: Sequence[tuple[Bucket, int]]) -> None:
        """`taken`: of one tenant."""
        lists = _Lists([], [len(taken)])
        for bucket, amount in taken:
            lists.keys.append(bucket.key)
            lists.args += (bucket.limit, amount)
        await self._call(CHARGE, lists)

    async def leave_place(self, plan: Plan, id: str) -> None:
        with redis_errors():
            for lease in plan.all_leases:
                await self._redis.zrem(lease.key, id)

    async def held(self, requests: Sequence[tuple[TenantId, UUID]]) -> set[UUID]:
        """Those of these requests that a live worker holds: one renews its reservations three times a lease,
        so those of a dead one are older within half of it. Raises `Unavailable`."""
        with redis_errors():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for tenant, request in requests:
                    pipeline.pttl(reservation_key(TenantKeys(tenant), str(request)))
                left_ms: list[int] = await pipeline.execute()
        fresh_ms = REMEMBER_MS - self._lease_ms // 2
        return {request for (_, request), left in zip(requests, left_ms, strict=True) if left > fresh_ms}

    async def ping(self) -> None:
        try:
            with redis_errors():
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    await self._redis.ping()
        except TimeoutError as error:
            raise _away() from error

    async def _call(self, script: Script, lists: _Lists) -> Any:
        """The pipe gives a silent server up by itself."""
        return await script(self._redis, lists.keys, lists.args)


def _answer(found: list[int | bytes], num_buckets: int, *, tagged: bool = False) -> Answer:
    numbers = [int(each) for each in found[: 6 + 2 * num_buckets]]  # no buckets where nothing was weighed
    state, epoch, which, available, parts, wait = numbers[:6]
    placed = tagged and state == ADMITTED
    return Answer(
        state,
        epoch if epoch >= 0 else None,
        which - 1,
        join(available, parts) if parts >= 0 else available,  # parts: of money only
        wait,
        tuple([Left(*numbers[at : at + 2]) for at in range(6, len(numbers), 2)]),
        float(found[-2]) if placed else None,
        float(found[-1]) if placed else 0.0,
    )


def _away() -> Unavailable:
    return Unavailable("The limiter cannot answer now. Try again shortly.")
