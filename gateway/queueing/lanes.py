"""What waits in one class: a line for each tenant, and the tenant whose first request has the least tag."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from gateway.queueing.ticket import Ticket


class Aged:
    """The owner of the line of those who came up from the class below."""


AGED: Final = Aged()


@dataclass(slots=True, eq=False)
class Entry:
    """One request, while it waits and while it is at a replica."""

    tenant: Hashable
    ticket: Ticket
    places: int  # one for each choice
    num_bytes: int  # of its body
    arrived: float
    deadline: float
    number: int = 0  # unique; given on entering
    index: int = 0  # of the class in which it waits: its own, or one that it rose to
    aged_tag: float | None = None  # its tag in a class that it rose to
    flow: Flow | None = None  # while it waits
    taken: int = 0  # places, while it is at a replica


@dataclass(slots=True, eq=False)
class Flow:
    """One tenant's line in a class. It exists while something waits in it."""

    owner: Hashable
    moved: float  # when a request of it last got on, else when it began
    waiting: OrderedDict[int, Entry] = field(default_factory=OrderedDict)
    credit: float = 0.0
    length: float = 0.0  # of all that waits
    stamp: int = -1  # names its one valid entry in the heap

    @property
    def head(self) -> Entry:
        return next(iter(self.waiting.values()))

    @property
    def key(self) -> float:
        head = self.head
        return head.ticket.start(self.credit) if head.aged_tag is None else head.aged_tag


class Lane:
    """One class. `time` is its virtual time among tenants (the greatest tag that was let go); `served` is its
    own among the classes: tokens divided by its share."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.time = 0.0
        self.served = 0.0
        self.unsent = 0.0  # of `served`, what the other workers have not been told
        self.flows: dict[Hashable, Flow] = {}
        self.items = 0
        self.places = 0
        self.tokens = 0
        self._heap: list[tuple[float, int, Flow]] = []
        self._stamps = count()
        self._aged_finish = 0.0

    def add(self, entry: Entry, now: float, *, first: bool = False) -> None:
        flow = self._flow(entry.tenant, now)
        moved = bool(flow.waiting) and entry.ticket.credit > flow.credit
        flow.credit = max(flow.credit, entry.ticket.credit)
        self._put(flow, entry)
        if first:
            flow.waiting.move_to_end(entry.number, last=False)
        if first or moved or len(flow.waiting) == 1:
            self._push(flow)

    def add_aged(self, entry: Entry, now: float, floor: float) -> None:
        """One that came up: all of them together are as one more tenant here."""
        entry.aged_tag = max(floor, self._aged_finish)
        self._aged_finish = entry.aged_tag + entry.ticket.length
        flow = self._flow(AGED, now)
        self._put(flow, entry)
        if len(flow.waiting) == 1:
            self._push(flow)

    def remove(self, entry: Entry) -> None:
        flow = entry.flow
        assert flow is not None
        was_head = flow.head is entry
        del flow.waiting[entry.number]
        entry.flow = None
        flow.length -= entry.ticket.length
        self.items -= 1
        self.places -= entry.places
        self.tokens -= entry.ticket.tokens
        if not flow.waiting:
            del self.flows[flow.owner]
            flow.stamp = -1
        elif was_head:
            self._push(flow)

    def first(self) -> Flow | None:
        """The line whose turn it is."""
        while self._heap:
            _, stamp, flow = self._heap[0]
            if flow.stamp == stamp:
                return flow
            heapq.heappop(self._heap)
        return None

    def first_few(self, most: int) -> list[Flow]:
        """The lines whose turn comes first."""
        found: list[tuple[float, int, Flow]] = []
        while self._heap and len(found) < most:
            item = heapq.heappop(self._heap)
            if item[2].stamp == item[1]:
                found.append(item)
        for item in found:
            heapq.heappush(self._heap, item)
        return [flow for _, _, flow in found]

    def note_credit(self, tenant: Hashable, credit: float) -> None:
        """A request of the tenant was settled: what it has waiting moves."""
        flow = self.flows.get(tenant)
        if flow is not None and credit > flow.credit:
            flow.credit = credit
            self._push(flow)

    def charge(self, tokens: float) -> None:
        """Tokens given (or, below 0, taken back) to the class."""
        self.served += tokens / self.share
        self.unsent += tokens / self.share

    def lift(self, least: float) -> None:
        """A class that comes back from having nothing saves up nothing by that."""
        if self.served < least:
            self.unsent += least - self.served
            self.served = least

    def _flow(self, owner: Hashable, now: float) -> Flow:
        flow = self.flows.get(owner)
        if flow is None:
            flow = self.flows[owner] = Flow(owner, now)
        return flow

    def _put(self, flow: Flow, entry: Entry) -> None:
        flow.waiting[entry.number] = entry
        flow.length += entry.ticket.length
        entry.flow = flow
        self.items += 1
        self.places += entry.places
        self.tokens += entry.ticket.tokens

    def _push(self, flow: Flow) -> None:
        flow.stamp = next(self._stamps)
        heapq.heappush(self._heap, (flow.key, flow.stamp, flow))
        if len(self._heap) > 64 + 4 * len(self.flows):
            self._heap = [item for item in self._heap if item[2].stamp == item[1]]
            heapq.heapify(self._heap)
