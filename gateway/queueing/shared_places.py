"""The twin of `exchange.lua`, in one process and with its time given: for simulations, and to hold the script
to it."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.queueing.places import DISTANCE, FRESH_S, Places, Reply, Report


@dataclass(slots=True)
class _Last:
    """A worker's last report, and until when it counts."""

    report: Report
    over: float
    stale: float
    held: int
    wanted: int


class SharedPlaces:
    def __init__(self, *, lease_s: float) -> None:
        self._lease_s = lease_s
        self._workers: dict[str, _Last] = {}
        self._served = [0.0] * 3
        self._times = [0.0] * 3

    @property
    def held(self) -> int:
        return sum(last.held for last in self._workers.values())

    def forget(self, worker: str) -> None:
        self._workers.pop(worker, None)

    def report(self, worker: str, report: Report, places: Places, now: float) -> Reply | None:
        """None: a later report was heard first."""
        own = self._workers.get(worker)
        if own is not None and own.report.sequence >= report.sequence:
            return None
        for name in [n for n, last in self._workers.items() if n != worker and last.over <= now]:
            del self._workers[name]
        others = [last for name, last in self._workers.items() if name != worker]
        reply = _sums(others, now)
        self._count_classes(report, reply)
        wanted = self._divide(report, reply, places, sum(last.held for last in others))
        held = max(report.used, reply.limit_owed)
        self._workers[worker] = _Last(report, now + self._lease_s, now + FRESH_S, held, wanted)
        return reply

    def _count_classes(self, report: Report, reply: Reply) -> None:
        """What was charged, and nothing saved up by a class that has nothing waiting."""
        busy = [c for c in range(3) if max(reply.heads[c], report.heads[c]) >= 0]
        for c in range(3):
            self._served[c] += report.charges[c]
            self._times[c] = max(self._times[c], report.times[c])
        least = min((self._served[c] for c in busy), default=float("-inf"))
        self._served = [s if c in busy else max(s, least) for c, s in enumerate(self._served)]
        reply.served, reply.times = list(self._served), list(self._times)

    def _divide(self, report: Report, reply: Reply, places: Places, held: int) -> int:
        """Sets the limits of the reply; gives the places that stay wanted."""
        room = places.capacity - held
        free = max(0, room - report.used)
        more = min(report.want, free if self._in_turn(report, reply) else max(0, free - reply.wanted))
        if free < report.chunk:
            more = 0
        kept_free = free > more  # for somebody who needs more of them at once, or comes first
        if reply.wanted == 0:
            more += min(report.spare, (free - more) // reply.workers)
        reply.limit = max(0, min(report.used + more, room))
        base = max(reply.limit, report.used)
        above = max(0, places.capacity + places.margin - held - base)
        owed = 0 if kept_free else min(max(0, report.want_owed - more), above)
        reply.limit_owed = base + owed if owed > 0 else reply.limit
        return max(0, report.want - more)

    def _in_turn(self, report: Report, reply: Reply) -> bool:
        busy = [c for c in range(3) if max(reply.heads[c], report.heads[c]) >= 0]
        least = min((self._served[c] for c in busy), default=0.0)
        return any(
            head >= 0
            and self._served[c] <= least + DISTANCE
            and (reply.heads[c] < 0 or head <= reply.heads[c] + DISTANCE)
            for c, head in enumerate(report.heads)
        )


def _sums(others: list[_Last], now: float) -> Reply:
    reply = Reply(workers=1 + len(others))
    for last in others:
        report = last.report
        reply.tenants += report.tenants
        reply.rate += report.rate
        for url, (requests, tokens) in report.loads.items():
            before = reply.loads.get(url, (0, 0))
            reply.loads[url] = (before[0] + requests, before[1] + tokens)
        if last.stale > now:
            reply.wanted += last.wanted
            reply.waiting += report.waiting
            for c, head in enumerate(report.heads):
                if head >= 0 and (reply.heads[c] < 0 or head < reply.heads[c]):
                    reply.heads[c] = head
            for c, floor in enumerate(report.floors):
                if floor >= 0 and (reply.floors[c] < 0 or floor < reply.floors[c]):
                    reply.floors[c] = floor
    return reply
