"""Admits, reserves, renews and settles against Redis, one script each.

Order (docs/ARCHITECTURE.md, the walk): `admit` at the door, before a body is read; `reserve` once the tokens
are counted; `settle` when the request has ended, however it ended. A refusal, of either kind, leaves every
counter as it was. When a worker dies, its leases run out by themselves after `lease_s`; tokens it had
reserved count as used, and refill with time like all others. When Redis can't be reached, nobody is let in:
503 with `Retry-After` is better than a limit that does not hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from redis.asyncio import Redis

from gateway.errors import RateLimited, Unavailable
from gateway.limits.keys import LimitKeys
from gateway.limits.metrics import DECISIONS, HELD
from gateway.limits.verdict import Verdict
from gateway.principal import Limits, Principal
from gateway.queueing.classes import CLASSES
from gateway.queueing.ticket import Ticket
from gateway.redis import RedisKey, Script, redis_errors
from gateway.refusal import Refusal

log = structlog.get_logger(__name__)

REMEMBER_MS = 15 * 60 * 1000
"""A reservation not renewed for this long is forgotten; settling it then gives nothing back."""

CALL_TIMEOUT_S = 3.0
"""For one script, waiting for a connection included."""

ROUND_S = 1.0
"""Between two looks at what is to be renewed or still to be settled."""

MAX_UNSETTLED = 10_000
"""Ends kept for a Redis that was away; beyond it leases run out by themselves."""

_HERE = Path(__file__).parent
_BUCKETS = _HERE / "buckets.lua"
_SHARE = _HERE.parent / "queueing" / "share.lua"
ADMIT = Script.load(_BUCKETS, _HERE / "admit.lua")
RESERVE = Script.load(_BUCKETS, _SHARE, _HERE / "reserve.lua")
SETTLE = Script.load(_BUCKETS, _SHARE, _HERE / "settle.lua")
RENEW = Script.load(_HERE / "renew.lua")


@dataclass(slots=True)
class Reservation:
    """What one request holds. Owned by its walk until `settle`."""

    request_id: str
    keys: LimitKeys
    tenant_limits: Limits
    key_limits: Limits
    epoch: int  # tenant's, as last seen; another than the principal's = resolve again
    headers: dict[str, str] = field(default_factory=dict)  # x-ratelimit-*
    tokens: int = 0
    ticket: Ticket | None = None  # where it stands in the queue
    holds_place: bool = True  # False: its client left, and it runs on

    def observe(self, verdict: Verdict) -> None:
        if verdict.epoch is not None:
            self.epoch = verdict.epoch
        self.headers.update(verdict.headers)

    @property
    def line(self) -> list[RedisKey]:
        ticket = self.ticket
        return [] if ticket is None else [self.keys.line(ticket.pool, CLASSES[ticket.index])]

    @property
    def parallel(self) -> list[int]:
        return [self.tenant_limits.max_parallel or 0, self.key_limits.max_parallel or 0]


class Limiter:
    """One per worker: it renews the leases of the requests that run in this worker."""

    def __init__(self, redis: Redis, *, lease_s: float) -> None:
        self._redis = redis
        self._lease_ms = int(lease_s * 1000)
        self._held: dict[str, Reservation] = {}
        self._unsettled: dict[str, tuple[Reservation, int]] = {}  # with the tokens used

    async def admit(self, principal: Principal, request_id: str) -> Reservation:
        """A request and a place; raises `RateLimited`, or `Unavailable` when Redis does not answer."""
        _refuse_when_closed(principal)
        keys = LimitKeys.of(principal)
        tenant, key = principal.tenant_limits, principal.key_limits
        reservation = Reservation(request_id, keys, tenant, key, principal.epoch)
        try:
            answer = await self._admit_one(reservation)
        except Unavailable:  # a Redis that hung may carry it out yet, for a request that is gone
            self._settle_later(reservation, 0)
            raise
        verdict = Verdict.parse("requests", answer)
        _count(verdict)
        if verdict.state == 0:
            raise verdict.refusal(1, {})
        reservation.observe(verdict)
        self._held[request_id] = reservation
        HELD.inc()
        return reservation

    async def reserve(self, reservation: Reservation, tokens: int, ticket: Ticket | None = None) -> None:
        """Tokens for the most the request may use, and with a ticket its place in its tenant's line of the
        queue.

        Raises `RateLimited`, and then the reservation has ended.
        """
        keys = reservation.keys
        reservation.ticket = ticket
        limits = [
            reservation.tenant_limits.tokens_per_minute or 0,
            reservation.key_limits.tokens_per_minute or 0,
        ]
        answer = await self._call(
            RESERVE,
            [
                *keys.tokens,
                *keys.requests,
                *keys.leases,
                keys.reservation(reservation.request_id),
                keys.epoch,
                *reservation.line,
            ],
            [*limits, tokens, reservation.request_id, *([ticket.floor, ticket.length] if ticket else [])],
        )
        verdict = Verdict.parse("tokens", answer[:9])
        _count(verdict)
        if verdict.state == 0:
            self._forget(reservation)
            raise verdict.refusal(tokens, reservation.headers)
        if verdict.state < 0:
            raise Unavailable("The request's reservation ran out before it was counted.")
        reservation.tokens = tokens
        if ticket is not None:
            ticket.tag, ticket.credit = float(answer[9]), float(answer[10])
        reservation.observe(verdict)

    async def settle(self, reservation: Reservation, used: int) -> bool:
        """Ends the reservation: unused tokens go back, the place is free. True for the one call that did it.

        Never raises: an end must not fail because Redis is away. It is then repeated until Redis is back, so
        that nobody's places stay taken for the length of a lease.
        """
        self._forget(reservation)
        try:
            return await self._settle_one(reservation, used)
        except Unavailable as error:
            log.warning("settle_failed", request=reservation.request_id, error=str(error.__cause__ or error))
            DECISIONS.labels("settle", "error").inc()
            self._settle_later(reservation, used)
            return False

    async def leave_place(self, reservation: Reservation) -> None:
        """Its client left and the request runs on, for a retry that needs the place. Never raises."""
        reservation.holds_place = False
        try:
            with redis_errors():
                for lease in reservation.keys.leases:
                    await self._redis.zrem(lease, reservation.request_id)
        except Unavailable as error:
            log.warning("place_not_left", request=reservation.request_id, error=str(error.__cause__ or error))

    async def run(self) -> None:
        """Renews what this worker holds, three times a lease, and settles late, until cancelled."""
        clock = asyncio.get_running_loop().time
        every_s = self._lease_ms / 3000
        renew_at = clock() + every_s
        while True:
            await asyncio.sleep(min(ROUND_S, every_s))
            try:
                await self._settle_late()
                if clock() >= renew_at:
                    renew_at = clock() + every_s
                    for reservation in list(self._held.values()):
                        await self._renew_one(reservation)
            except Unavailable as error:
                log.warning("lease_renewal_failed", error=str(error.__cause__ or error))

    def _settle_later(self, reservation: Reservation, used: int) -> None:
        if len(self._unsettled) < MAX_UNSETTLED:
            self._unsettled[reservation.request_id] = (reservation, used)

    async def _settle_late(self) -> None:
        """What could not be settled when it ended. A script that ran although its answer was lost changes
        nothing the second time."""
        for request_id, (reservation, used) in list(self._unsettled.items()):
            await self._settle_one(reservation, used)
            del self._unsettled[request_id]

    async def _admit_one(self, reservation: Reservation) -> Any:
        keys, tenant, key = reservation.keys, reservation.tenant_limits, reservation.key_limits
        return await self._call(
            ADMIT,
            [*keys.requests, *keys.leases, keys.reservation(reservation.request_id), keys.epoch],
            [
                tenant.requests_per_minute or 0,
                key.requests_per_minute or 0,
                *reservation.parallel,
                reservation.request_id,
                self._lease_ms,
                REMEMBER_MS,
            ],
        )

    async def _settle_one(self, reservation: Reservation, used: int) -> bool:
        keys, ticket = reservation.keys, reservation.ticket
        ended, credit = await self._call(
            SETTLE,
            [*keys.tokens, *keys.leases, keys.reservation(reservation.request_id), *reservation.line],
            [
                used,
                reservation.request_id,
                *([ticket.used_length(used), int(ticket.served)] if ticket else []),
            ],
        )
        if ticket is not None and credit:
            ticket.credit_after = float(credit)
        return int(ended) == 1

    async def _renew_one(self, reservation: Reservation) -> None:
        keys = reservation.keys
        await self._call(
            RENEW,
            [*keys.leases, keys.reservation(reservation.request_id)],
            [
                *(int(limit > 0 and reservation.holds_place) for limit in reservation.parallel),
                reservation.request_id,
                self._lease_ms,
                REMEMBER_MS,
            ],
        )

    async def _call(self, script: Script, keys: Sequence[RedisKey], args: Sequence[int | str | float]) -> Any:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                return await script(self._redis, keys, args)
        except TimeoutError as error:
            raise Unavailable("The limiter cannot answer now. Try again shortly.") from error

    def _forget(self, reservation: Reservation) -> None:
        if self._held.pop(reservation.request_id, None) is not None:
            HELD.dec()


def _refuse_when_closed(principal: Principal) -> None:
    """A limit of 0 lets nothing pass; to the scripts, 0 means that there is none."""
    for owner, limits in (("tenant", principal.tenant_limits), ("key", principal.key_limits)):
        if 0 in (limits.requests_per_minute, limits.tokens_per_minute, limits.max_parallel):
            DECISIONS.labels("closed", "refused").inc()
            error = RateLimited(f"A limit of this {owner} is 0: it may send nothing.", retry_after_s=60.0)
            error.refusal = Refusal(f"{owner}.closed", 0, 1, 0)
            raise error


def _count(verdict: Verdict) -> None:
    limit = "parallel" if verdict.refused_by.parallel else verdict.meter
    DECISIONS.labels(limit, {1: "admitted", 0: "refused"}.get(verdict.state, "ended")).inc()
