"""Who may wait at all: within the bounds, and not longer than it can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.queueing.bounds import Bound, Bounds, Promised
from gateway.queueing.forecast import Appointments, Rate
from gateway.queueing.lanes import Entry, Lane
from gateway.queueing.places import Elsewhere

UNKNOWN_S: Final = 1.0
"""What is said while there is no rate."""
EARLY: Final = 0.8
"""An appointment is for when the forecast is down to this part of the time that the request has."""


class TurnedAway(Exception):
    """The request may not wait. `retry_after_s`: when it will be let in, as far as can be known."""

    def __init__(self, bound: Bound, retry_after_s: float, forecast_s: float | None = None) -> None:
        super().__init__(bound)
        self.bound: Bound = bound
        self.retry_after_s = retry_after_s
        self.forecast_s = forecast_s


class Admission:
    """Reads the queue and changes nothing in it; its own are the appointments and the rate."""

    def __init__(self, lanes: Sequence[Lane], bounds: Bounds, elsewhere: Elsewhere) -> None:
        self._lanes = lanes
        self._bounds = bounds
        self._elsewhere = elsewhere
        self.rate = Rate()
        self.appointments = Appointments()

    def judge(self, entry: Entry, now: float, *, goes_at_once: bool) -> None:
        """Raises `TurnedAway`. One that comes as it was told stands before those that were told later; one
        that needn't wait takes nobody's room."""
        tenant, index = entry.tenant, entry.index
        promised = Promised()
        if not self.appointments.keep(tenant, index, now) and not goes_at_once:
            items, tokens = self.appointments.outstanding(tenant, index, now)
            promised = Promised(items, tokens, self.appointments.items)
        broken = self._bounds.broken_by(entry, promised)
        if broken is not None:
            raise self._turned_away(entry, broken, now, 0.0)
        forecast = 0.0 if goes_at_once else self.forecast_s(entry)
        if not forecast:
            return
        if promised.tokens:
            forecast += promised.tokens / self._own_rate(entry)
        allowed = entry.deadline - now
        if forecast > allowed:
            raise self._turned_away(entry, "forecast", now, max(0.0, forecast - EARLY * allowed))

    def forecast_s(self, entry: Entry) -> float | None:
        """Seconds that the request would wait if it entered now and no place is free; None: nothing is
        known."""
        rate = self._rate_here()
        if not rate:
            return None
        lane = self._lanes[entry.index]
        ticket = entry.ticket
        own = lane.flows.get(entry.tenant)
        ahead = self.rate.mean_tokens  # one has to end in any case
        start = ticket.start(ticket.credit)
        if own is not None:
            ahead += own.length * ticket.weight
        for flow in lane.flows.values():
            if flow is not own and (passed := start - flow.key) >= 0:
                head = flow.head.ticket
                ahead += head.weight * min(flow.length, max(passed, head.length))
        others = sum(each.tokens for each in self._lanes if each is not lane)
        return min(ahead / (rate * self._share_of(lane)), (ahead + others) / rate)

    def _turned_away(self, entry: Entry, bound: Bound, now: float, earliest_s: float) -> TurnedAway:
        if not self._rate_here():
            return TurnedAway(bound, max(UNKNOWN_S, earliest_s))
        tokens, own_rate = entry.ticket.tokens, self._own_rate(entry)
        pause = self.appointments.make(
            entry.tenant,
            entry.index,
            now,
            earliest_s=max(earliest_s, tokens / own_rate),
            tokens=tokens,
            rate=own_rate,
        )
        return TurnedAway(bound, pause, self.forecast_s(entry))

    def _rate_here(self) -> float:
        """Tokens a second that leave this worker's queue: its part, by what waits, of what ends anywhere."""
        rate = self.rate.tokens_per_s + self._elsewhere.said.rate
        waiting = self._bounds.all.tokens
        elsewhere = self._elsewhere.said.waiting
        return rate * waiting / (waiting + elsewhere) if waiting and elsewhere else rate

    def _own_rate(self, entry: Entry) -> float:
        """Tokens a second of its tenant in its class."""
        lane = self._lanes[entry.index]
        num_flows = len(lane.flows) + (entry.tenant not in lane.flows)
        return self._rate_here() * self._share_of(lane) / num_flows

    def _share_of(self, lane: Lane) -> float:
        return lane.share / sum(each.share for each in self._lanes if each.items or each is lane)
