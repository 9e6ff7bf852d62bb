"""Admits, reserves, renews and settles, one script each.

Order (docs/ARCHITECTURE.md, the walk): `admit` at the door, before a body is read; `reserve` once the tokens
are counted; `settle` when the request has ended, however it ended. A refusal, of either kind, leaves every
counter as it was. When a worker dies, its leases run out by themselves after `lease_s`, and money it had
reserved with them; tokens it had reserved count as used, and refill with time like all others. While Redis
can't be reached, a worker keeps to its own share of each limit (`outage.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final

import structlog
from prometheus_client import Counter
from redis.asyncio import Redis

from gateway.billing.price_book.prices import PriceRow
from gateway.errors import RateLimited, Unavailable
from gateway.limits.amounts import NO_TOKENS, NOTHING, Meter, Tokens, Used
from gateway.limits.asks import ADMITTED, ENDED, REFUSED, UNSEEDED, Answer, Looked, Store
from gateway.limits.levels import Lease, Plan, plan_of, today
from gateway.limits.metrics import DECISIONS, HELD, LOCAL_ADMITTED, RESTORED
from gateway.limits.outage import Outage
from gateway.limits.redis_store import RedisStore
from gateway.limits.reservation import Reservation
from gateway.limits.spending import Spending, real_price, worst_price
from gateway.limits.verdict import Limit, Need, Refusal, limits_of
from gateway.principal import Limits, Principal
from gateway.queueing.ticket import Ticket
from gateway.refusal import Refusal as Told

log = structlog.get_logger(__name__)

ROUND_S: Final = 1.0
"""Between two looks at what is to be renewed or still to be settled, and at a Redis that is away."""

MAX_UNSETTLED: Final = 10_000
"""Ends kept for a Redis that was away; beyond it leases run out by themselves."""


class Limiter:
    """One per worker: it renews the leases of the requests that run in this worker."""

    def __init__(
        self,
        redis: Redis,
        *,
        lease_s: float,
        spending: Spending | None = None,
        workers: Callable[[], int] = lambda: 1,
    ) -> None:
        """`spending` None: nobody has a budget. `workers`: of the whole deployment, as last heard."""
        self._lease_s = lease_s
        self._shared = RedisStore(redis, lease_s=lease_s)
        self._spending = spending
        self._held: dict[str, Reservation] = {}
        self._outage = Outage(self._shared, self._held, lease_s=lease_s, workers=workers, seed=self._seed)
        self._unsettled: dict[str, tuple[Reservation, Used]] = {}

    async def admit(self, principal: Principal, request_id: str) -> Reservation:
        """A request and a place; raises `RateLimited`, or `Unavailable` when nobody can say."""
        _refuse_when_closed(principal)
        plan = plan_of(principal, today())
        reservation = Reservation(request_id, plan, principal.service_class, principal.epoch)
        answer = await self._admit_one(reservation)
        limits = limits_of(plan.door_buckets, plan.door_leases, plan.counters)
        _count(answer, limits, "requests")
        if answer.state == REFUSED:
            raise Refusal.of(limits, answer, Need(NO_TOKENS)).error({})
        reservation.observe(plan.door_buckets, answer)
        self._held[request_id] = reservation
        HELD.inc()
        return reservation

    async def reserve(self, reservation: Reservation, tokens: Tokens, ticket: Ticket | None = None) -> None:
        """The most that the request may use: tokens, and their money where there is a budget; with a ticket
        also its place in its tenant's line of the queue.

        Raises `RateLimited`, and then the reservation has ended; `Unavailable` where a hard budget can't be
        kept, for no price is known.
        """
        reservation.tokens, reservation.ticket = tokens, ticket
        reservation.money = self.worst(reservation)
        await self._take(reservation)

    async def reserve_kept(self, reservation: Reservation, used: Used) -> None:
        """The same for an answer that is there already: its exact price, and the request and place of its
        adapter's limits. Nothing is computed, so no tokens; and no trip where there is no such limit."""
        plan = reservation.plan
        requests = tuple(each for each in plan.buckets if each.meter is Meter.REQUESTS)
        reservation.plan = replace(plan, buckets=requests)
        if requests or plan.leases or any(each.hard for each in plan.counters):
            reservation.money = self._known_price(reservation, lambda row: real_price(row, used))
            await self._take(reservation)

    async def _take(self, reservation: Reservation) -> None:
        plan, ticket = reservation.plan, reservation.ticket
        answer = await self._reserve_one(reservation)
        if answer.state == UNSEEDED:  # a new period, or a Redis that lost its memory
            await self._seed(plan, self._store_of(reservation))
            answer = await self._reserve_one(reservation)
        limits = limits_of(plan.buckets, plan.leases, plan.counters)
        _count(answer, limits, "tokens")
        reservation.observe(plan.all_buckets, answer)
        if answer.state == REFUSED:
            self._forget(reservation)
            need = Need(reservation.tokens, reservation.money)
            raise Refusal.of(limits, answer, need).error(reservation.headers)
        if answer.state in (ENDED, UNSEEDED):
            raise Unavailable("The request's reservation ran out before it was counted.")
        reservation.reserved = True
        if ticket is not None and answer.tag is not None:
            ticket.tag, ticket.credit = answer.tag, answer.credit

    async def settle(self, reservation: Reservation, used: Used = NOTHING) -> bool:
        """Ends the reservation: what was not used goes back, the place is free. True for the one call that
        did it.

        Never raises: an end must not fail because Redis is away. It is then repeated until Redis is back, so
        that nobody's places stay taken for the length of a lease.
        """
        await self._outage.turned()
        self._forget(reservation)
        try:
            return await self._settle_one(reservation, used)
        except Unavailable as error:
            log.warning("settle_failed", request=reservation.request_id, error=str(error.__cause__ or error))
            DECISIONS.labels("settle", "error").inc()
            self._outage.begin()
            self._settle_later(reservation, used)
            return False

    async def leave_place(self, reservation: Reservation) -> None:
        """Its client left and the request runs on, for a retry that needs the place. As many as a limit lets
        run may do so in a worker; one more keeps its place. Never raises."""
        if not self._may_leave(reservation):
            return
        reservation.holds_place = False
        try:
            await self._store_of(reservation).leave_place(reservation.plan, reservation.id)
        except Unavailable as error:
            log.warning("place_not_left", request=reservation.request_id, error=str(error.__cause__ or error))

    def _may_leave(self, reservation: Reservation) -> bool:
        """Else whoever leaves each of his requests would have as many as he likes."""
        without = [held.plan.all_leases for held in self._held.values() if not held.holds_place]
        taken = [lease.key for leases in without for lease in leases]
        return all(taken.count(lease.key) < lease.limit for lease in reservation.plan.all_leases)

    async def look(self, plan: Plan, tokens: Tokens | None = None, money: int = 0) -> Looked:
        """What a request of so much would be told (None: what is left, for nobody), and what is left of
        everything. Takes nothing. Raises `Unavailable`."""
        await self._outage.turned()
        store: Store = self._outage.local or self._shared
        looked = await store.look(plan, tokens or NO_TOKENS, money)
        if looked.answer.state == UNSEEDED:
            await self._seed(plan, store)
            looked = await store.look(plan, tokens or NO_TOKENS, money)
        return looked

    def worst(self, reservation: Reservation) -> int:
        """The most that it may cost, in units; 0 where there is no budget. Raises `Unavailable` when a hard
        one can't be kept for want of a price."""
        return self._known_price(reservation, lambda row: worst_price(row, reservation.tokens))

    def _known_price(self, reservation: Reservation, price: Callable[[PriceRow], int]) -> int:
        counters = reservation.plan.counters
        if not counters:
            return 0
        row = None
        if self._spending is not None and reservation.selector is not None:
            row = self._spending.price_of(reservation.selector)
        if row is not None:
            return price(row)
        if any(each.hard for each in counters):
            raise Unavailable(
                "No price is known for this model, so its budget can't be kept.",
                code="price_unknown",
                retry_after_s=60.0,
            )
        return 0

    async def run(self) -> None:
        """Renews what this worker holds, three times a lease, settles late, and waits for a Redis that is
        away, until cancelled."""
        clock = asyncio.get_running_loop().time
        every_s = self._lease_s / 3
        renew_at = clock() + every_s
        while True:
            await asyncio.sleep(min(ROUND_S, every_s))
            try:
                if self._outage.local is not None:
                    await self._shared.ping()
                await self._settle_late()
                await self._outage.end()
                if clock() >= renew_at:
                    renew_at = clock() + every_s
                    for reservation in list(self._held.values()):
                        await self._renew_one(reservation)
            except Unavailable as error:
                self._outage.begin()
                log.warning("lease_renewal_failed", error=str(error.__cause__ or error))

    async def _admit_one(self, reservation: Reservation) -> Answer:
        await self._outage.turned()
        if self._outage.local is None:
            try:
                return await self._shared.admit(reservation.plan, reservation.id)
            except Unavailable:  # a Redis that hung may carry it out yet
                self._fall_back(reservation)
        local = self._outage.local
        assert local is not None
        self._make_local(reservation)
        answer = await local.admit(reservation.plan, reservation.id)
        if answer.state == ADMITTED:
            LOCAL_ADMITTED.inc()
        return answer

    async def _reserve_one(self, reservation: Reservation) -> Answer:
        await self._outage.turned()
        if not reservation.local:
            try:
                return await self._shared.reserve(
                    reservation.plan,
                    reservation.id,
                    reservation.tokens,
                    reservation.money,
                    reservation.place(),
                )
            except Unavailable:
                self._fall_back(reservation)
                answer = await self._admit_one(reservation)
                if answer.state == REFUSED:
                    limits = limits_of(
                        reservation.plan.door_buckets, reservation.plan.door_leases, reservation.plan.counters
                    )
                    self._forget(reservation)
                    raise Refusal.of(limits, answer, Need(NO_TOKENS)).error({}) from None
                return await self._reserve_one(reservation)
        local = self._outage.local
        assert local is not None, "what is local is taken over before an outage ends"
        return await local.reserve(
            reservation.plan, reservation.id, reservation.tokens, reservation.money, reservation.place()
        )

    def _fall_back(self, reservation: Reservation) -> None:
        """What Redis may know of it is ended there once it is back; here it goes on under another id."""
        ghost = Reservation(
            reservation.request_id,
            reservation.plan,
            reservation.service_class,
            reservation.epoch,
            ticket=None if reservation.ticket is None else replace(reservation.ticket, served=False),
            id=reservation.id,
        )
        self._settle_later(ghost, NOTHING)
        self._outage.begin()
        self._make_local(reservation)

    @staticmethod
    def _make_local(reservation: Reservation) -> None:
        reservation.local = True
        reservation.id = f"{reservation.request_id}~"

    def _store_of(self, reservation: Reservation) -> Store:
        local = self._outage.local
        return local if reservation.local and local is not None else self._shared

    def _price(self, reservation: Reservation, used: Used) -> int:
        if not reservation.plan.counters or self._spending is None or reservation.selector is None:
            return 0
        row = self._spending.price_of(reservation.selector)
        return 0 if row is None else real_price(row, used)

    async def _seed(self, plan: Plan, store: Store) -> None:
        """Tells a store what was charged in the periods that run. Raises `Unavailable`."""
        if self._spending is None:
            return
        for counter in plan.counters:
            await store.seed(counter, await self._spending.spent(counter))

    def _settle_later(self, reservation: Reservation, used: Used) -> None:
        if len(self._unsettled) < MAX_UNSETTLED:
            self._unsettled[reservation.id] = (reservation, used)

    async def _settle_late(self) -> None:
        """What could not be settled when it ended. A script that ran although its answer was lost changes
        nothing the second time."""
        for name, (reservation, used) in list(self._unsettled.items()):
            await self._settle_one(reservation, used)
            del self._unsettled[name]

    async def _settle_one(self, reservation: Reservation, used: Used) -> bool:
        ended, credit = await self._store_of(reservation).settle(
            reservation.plan,
            reservation.id,
            used.tokens,
            self._price(reservation, used),
            reservation.place_used(used),
        )
        if reservation.ticket is not None and credit is not None:
            reservation.ticket.credit_after = credit
        return ended

    async def _renew_one(self, reservation: Reservation) -> None:
        """One that Redis lost (it was emptied, or failed over without the last second) is entered anew, so
        that its places and its money are counted again."""
        if reservation.local:
            return
        shared, plan = self._shared, reservation.plan
        if await shared.renew(plan, reservation.id, places=reservation.holds_place):
            return
        if self._held.get(reservation.request_id) is reservation:
            await self._outage.adopt(reservation)
            RESTORED.inc()
            if reservation.request_id not in self._held:  # it ended meanwhile
                await shared.settle(plan, reservation.id, NO_TOKENS, 0)

    def _forget(self, reservation: Reservation) -> None:
        if self._held.pop(reservation.request_id, None) is not None:
            HELD.dec()


def _refuse_when_closed(principal: Principal) -> None:
    """A limit of 0 lets nothing pass."""
    for owner, limits in (("tenant", principal.tenant_limits), ("key", principal.key_limits)):
        if _is_closed(limits):
            DECISIONS.labels("closed", "refused").inc()
            error = RateLimited(f"A limit of this {owner} is 0: it may send nothing.", retry_after_s=60.0)
            error.refusal = Told(f"{owner}.closed", 0, 1, 0)
            raise error


def _is_closed(limits: Limits) -> bool:
    return 0 in (
        limits.requests_per_minute,
        limits.tokens_per_minute,
        limits.max_parallel,
        limits.input_tokens_per_minute,
        limits.output_tokens_per_minute,
    )


def _count(answer: Answer, limits: list[Limit], meter: str) -> None:
    named = meter
    if answer.state == REFUSED:
        limit = limits[answer.which]
        named = "parallel" if isinstance(limit, Lease) else limit.id.partition(".")[2]
    _decisions(named, answer.state).inc()


@cache
def _decisions(named: str, state: int) -> Counter:
    return DECISIONS.labels(named, {ADMITTED: "admitted", REFUSED: "refused"}.get(state, "ended"))
