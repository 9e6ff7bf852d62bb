"""Who goes next. Pure: no clock, no event loop, no Redis; time is an argument, so that it can be simulated.

1. The class that was served least for its share; one that rose by waiting counts with the class above.
2. In it, the tenant whose first request has the least tag (`ticket.py`).
3. In a tenant, whoever came first.

Two limits on places, which other workers may narrow (`places.py`): `limit` for everyone, and `limit_owed`, up
to a quarter above it, for tenants that hold less than an equal part and are next, or nearly, in tokens. So
one tenant alone gets all places, and a newcomer still waits for none of them: it takes a place above the
limit, which is paid back by the next that ends. A replica holds that quarter (its admission limit), and makes
room at once for a tenant that runs nothing.

With other workers, a request goes only if it is in turn among all (`Elsewhere.lets`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import count
from typing import Final, Literal

from gateway.queueing.admission import Admission
from gateway.queueing.bounds import Bounds, QueueLimits
from gateway.queueing.classes import WEIGHTS
from gateway.queueing.lanes import Entry, Flow, Lane
from gateway.queueing.places import DISTANCE, NOTHING, Depth, Elsewhere, Loads, Reply, Report

LOOKED_AT: Final = 8
"""Lines of a class among which one that is owed a place is looked for."""
HeldBack = Literal["own_requests", "class", "tenants", "places"]
"""Others of its tenant came before it; another class was served less for its share; so was another tenant of
its class; or it is next, and all places are taken."""
SPARE: Final = 16
"""Places that a worker keeps at hand while nobody waits anywhere."""


class Scheduler:
    """Owned by one worker's queue."""

    def __init__(self, limits: QueueLimits, weights: tuple[int, ...] = WEIGHTS) -> None:
        self._limits = limits
        self.lanes = [Lane(weight / sum(weights)) for weight in weights]
        self.bounds = Bounds(limits)
        self.elsewhere = Elsewhere()
        self.admission = Admission(self.lanes, self.bounds, self.elsewhere)
        self.capacity = 0  # places of all replicas, all workers together
        self.limit = 0
        self.limit_owed = 0
        self.used = 0
        self.expired: list[Entry] = []  # too late when their turn came; their owner takes them
        self._held: dict[Hashable, int] = {}  # places by tenant
        self._out: dict[tuple[Hashable, int], set[Entry]] = {}  # at replicas, by tenant and class
        self._present: dict[Hashable, int] = {}  # requests by tenant, waiting or at a replica
        self._numbers = count(1)

    @property
    def waiting(self) -> int:
        return self.bounds.all.items

    @property
    def num_tenants(self) -> int:
        """Tenants that wait or hold a place."""
        return len(self._present)

    def depth(self, now: float) -> Depth:
        said, rate = self.elsewhere.told(now), self.admission.rate.tokens_per_s
        return Depth(
            waiting=sum(lane.places for lane in self.lanes) + said.wanted,
            waiting_tokens=self.bounds.all.tokens + round(said.waiting),
            places=self.capacity,
            tokens_per_s=rate + said.rate or None,
            workers=said.workers,
        )

    def held_by(self, tenant: Hashable) -> int:
        return self._held.get(tenant, 0)

    def set_limits(self, limit: int, limit_owed: int) -> None:
        self.limit, self.limit_owed = limit, limit_owed

    def floor(self, index: int, now: float) -> float:
        """Where a newcomer to a class begins: at its virtual time, or level with the tenant that was served
        least of those that wait. The latter lies before, since what runs was charged by estimates that it may
        not use."""
        floors = [self.lanes[index].time, self._least_served(index)]
        if self.elsewhere.waits(index, now):
            floors.append(self.elsewhere.said.floors[index])
        return min(floor for floor in floors if floor != NOTHING)

    def _least_served(self, index: int) -> float:
        """Among those that wait, what runs left out."""
        flows = self.lanes[index].first_few(LOOKED_AT)
        return min((max(0.0, flow.key - self._out_of(flow.owner, index)) for flow in flows), default=NOTHING)

    def _out_of(self, tenant: Hashable, index: int) -> float:
        """Length of what a tenant has at replicas."""
        return sum(entry.ticket.length for entry in self._out.get((tenant, index), ()))

    # In and out.

    def enter(self, entry: Entry, now: float) -> None:
        """Raises `TurnedAway`: a bound of the queue, or a forecast that is later than the deadline."""
        entry.index = entry.ticket.index
        self._advance(now)
        self.admission.judge(entry, now, goes_at_once=self._goes_at_once(entry, now))
        self._add(entry, now, first=False)

    def enter_again(self, entry: Entry, now: float) -> None:
        """One that a full replica turned away goes before its tenant's others, past all bounds."""
        entry.index = entry.ticket.index
        entry.aged_tag = None
        self._advance(now)
        self._add(entry, now, first=True)

    def withdraw(self, entry: Entry, now: float) -> None:
        """Its client left, or its time is over. At once, and without a trace."""
        if entry.flow is not None:
            self._advance(now)
            self._remove(entry)

    def next(self, now: float) -> Entry | None:
        """The request that goes now, its places taken; None when none may."""
        self._advance(now)
        lanes = self._in_order(now)
        for lane in lanes:
            flow = lane.first()
            if flow is None or not self.elsewhere.lets(self.lanes, self.lanes.index(lane), flow.key, now):
                continue
            if self._fits(flow.head, self.limit):
                return self._let_go(lane, flow, now)
            if self.used < self.limit:
                return None  # what comes behind may not take what this one waits for
            break
        return self._next_owed(lanes, now)

    def _next_owed(self, lanes: list[Lane], now: float) -> Entry | None:
        if self.used >= self.limit_owed:
            return None
        for lane, flow in self._owed_lines(lanes, now):
            if self._fits(flow.head, self.limit_owed):
                return self._let_go(lane, flow, now)
        return None

    def leave(self, entry: Entry, used_tokens: int, now: float) -> None:
        """Its places are free again. What it did not use goes back to its class, and moves its tenant's
        line."""
        self._advance(now)
        ticket = entry.ticket
        self.used -= entry.taken
        _add_to(self._held, entry.tenant, -entry.taken)
        _add_to(self._present, entry.tenant, -1)
        entry.taken = 0
        out = self._out[entry.tenant, ticket.index]
        out.discard(entry)
        if not out:
            del self._out[entry.tenant, ticket.index]
        kept = used_tokens + ticket.load_tokens if ticket.served else 0
        self.lanes[entry.index].charge(kept - ticket.tokens)
        if ticket.served and self._crowded(now):
            self.admission.rate.ended(ticket.tokens)
        if ticket.credit_after is not None:
            self.lanes[ticket.index].note_credit(entry.tenant, ticket.credit_after)

    def age(self, now: float) -> None:
        """A line of a lower class in which nobody got on for `aging_s` sends its first into the class
        above."""
        self._advance(now)
        self.admission.appointments.lapse(now)
        for index in range(1, len(self.lanes)):
            lane, above = self.lanes[index], self.lanes[index - 1]
            for flow in list(lane.flows.values()):
                head = flow.head
                if now - max(flow.moved, head.arrived) >= self._limits.aging_s:
                    flow.moved = now
                    lane.remove(head)
                    self._wake(index - 1, now)
                    head.index = index - 1
                    above.add_aged(head, now, self.floor(index - 1, now))

    # With other workers.

    def report(self, sequence: int, now: float, loads: Loads) -> Report:
        """What the others have to know; what was charged since the last one goes with it. Until the answer
        (`apply`) no more is used than what is asked for here."""
        lanes = self._in_order(now)
        wanted = sum(lane.places for lane in lanes)
        first = lanes[0].first() if lanes else None
        report = Report(
            sequence=sequence,
            used=self.used,
            want=wanted,
            chunk=self._need(first.head) if first is not None else 1,
            want_owed=sum(self._need(flow.head) for _, flow in self._owed_lines(lanes, now)),
            spare=0 if wanted else SPARE,
            tenants=self.num_tenants,
            waiting=self.bounds.all.tokens,
            rate=self.admission.rate.tokens_per_s,
            heads=[NOTHING if (flow := lane.first()) is None else flow.key for lane in self.lanes],
            floors=[self._least_served(index) for index in range(len(self.lanes))],
            charges=[lane.unsent for lane in self.lanes],
            times=[lane.time for lane in self.lanes],
            loads=loads,
        )
        for lane in self.lanes:
            lane.unsent = 0.0
        asked = report.used + report.want + report.spare
        self.limit = min(self.limit, asked)
        self.limit_owed = min(self.limit_owed, asked + report.want_owed)
        return report

    def apply(self, reply: Reply, now: float) -> None:
        self._advance(now)
        self.elsewhere.hear(reply, now)
        self.set_limits(reply.limit, reply.limit_owed)
        for lane, served, time in zip(self.lanes, reply.served, reply.times, strict=True):
            lane.served = served + lane.unsent
            lane.time = max(lane.time, time)

    def take_back(self, report: Report) -> None:
        """Nobody heard it."""
        for lane, charge in zip(self.lanes, report.charges, strict=True):
            lane.unsent += charge

    def presses(self, entry: Entry) -> bool:
        """Whether more places should be asked for at once, for one that waits."""
        return self.waiting == 1 or self._owed(entry)

    def held_back(self, entry: Entry) -> HeldBack:
        """Why one that has just come does not go at once."""
        lane, flow = self.lanes[entry.index], entry.flow
        if flow is not None and flow.head is not entry:
            return "own_requests"
        if any(other.items and other.served < lane.served for other in self.lanes if other is not lane):
            return "class"
        return "places" if lane.first() is flow else "tenants"

    # Steps.

    def _in_order(self, now: float) -> list[Lane]:
        """Classes in which something waits, the next one first. What is too late has left them."""
        for lane in self.lanes:
            while (flow := lane.first()) is not None and flow.head.deadline <= now:
                head = flow.head
                self._remove(head)
                self.expired.append(head)
        return sorted((lane for lane in self.lanes if lane.items), key=_served)

    def _let_go(self, lane: Lane, flow: Flow, now: float) -> Entry:
        entry = flow.head
        lane.time = max(lane.time, flow.key)
        flow.moved = now
        self._remove(entry)
        lane.charge(entry.ticket.tokens)
        entry.ticket.served = True
        entry.taken = self._need(entry)
        self.used += entry.taken
        _add_to(self._held, entry.tenant, entry.taken)
        self._out.setdefault((entry.tenant, entry.ticket.index), set()).add(entry)
        _add_to(self._present, entry.tenant, 1)
        return entry

    def _goes_at_once(self, entry: Entry, now: float) -> bool:
        if not self.waiting and self._fits(entry, self.limit):
            return True
        lane = self.lanes[entry.index]
        if any(lane.served > other.served + DISTANCE for other in self.lanes if other.items):
            return False
        start = entry.ticket.start(entry.ticket.credit)
        return self._fits(entry, self.limit_owed) and self._owed(entry) and self._near(lane, start, now)

    def _need(self, entry: Entry) -> int:
        """Places; one with more choices than there are places takes all of them."""
        return min(entry.places, max(1, self.capacity))

    def _fits(self, entry: Entry, limit: int) -> bool:
        return self.used + self._need(entry) <= limit

    def _owed(self, entry: Entry) -> bool:
        """Its tenant would still hold no more than an equal part of all places."""
        num_tenants = self.num_tenants + self.elsewhere.said.tenants + (entry.tenant not in self._present)
        return self.held_by(entry.tenant) + self._need(entry) <= self.capacity // num_tenants

    def _owed_lines(self, lanes: list[Lane], now: float) -> Iterator[tuple[Lane, Flow]]:
        """Those that may take a place above the limit. None of them is further ahead in tokens than
        `DISTANCE`: else a tenant of few large requests would get an equal part of places, and a low class
        more than its share."""
        for lane in lanes:
            if lane.served > lanes[0].served + DISTANCE:
                return
            for flow in lane.first_few(LOOKED_AT):
                if self._near(lane, flow.key, now) and flow.head.deadline > now and self._owed(flow.head):
                    yield lane, flow

    def _near(self, lane: Lane, key: float, now: float) -> bool:
        """Whether it is no further ahead than `DISTANCE` of what waits in its class, and of what waits
        elsewhere."""
        first = lane.first()
        if first is not None and key > first.key + DISTANCE:
            return False
        return self.elsewhere.lets(self.lanes, self.lanes.index(lane), key, now)

    def _add(self, entry: Entry, now: float, *, first: bool) -> None:
        if not entry.number:
            entry.number = next(self._numbers)
        self._wake(entry.index, now)
        self.bounds.add(entry)
        _add_to(self._present, entry.tenant, 1)
        self.lanes[entry.index].add(entry, now, first=first)

    def _remove(self, entry: Entry) -> None:
        self.bounds.remove(entry)
        _add_to(self._present, entry.tenant, -1)
        self.lanes[entry.index].remove(entry)

    def _wake(self, index: int, now: float) -> None:
        """Before something waits in a class in which nothing did: it saved up nothing."""
        lane = self.lanes[index]
        if lane.items or self.elsewhere.waits(index, now):
            return
        busy = [
            other.served
            for i, other in enumerate(self.lanes)
            if i != index and (other.items or self.elsewhere.waits(i, now))
        ]
        if busy:
            lane.lift(min(busy))

    def _crowded(self, now: float) -> bool:
        """Whether something waits, here or elsewhere."""
        return self.waiting > 0 or (self.elsewhere.said.wanted > 0 and self.elsewhere.fresh(now))

    def _advance(self, now: float) -> None:
        self.admission.rate.note(now, waiting=self._crowded(now))


def _served(lane: Lane) -> float:
    return lane.served


def _add_to(counts: dict[Hashable, int], tenant: Hashable, step: int) -> None:
    left = counts.get(tenant, 0) + step
    if left:
        counts[tenant] = left
    else:
        del counts[tenant]
