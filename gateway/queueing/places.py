"""What workers tell each other about the replicas' places, and what a worker makes of it. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from gateway.queueing.lanes import Lane

NOTHING: Final = -1.0
"""Among tags: no request waits in that class."""
FRESH_S: Final = 0.1
"""What a worker says of its queue counts for so long. One with something waiting reports ten times as
often."""
TOLD_S: Final = 2.0
"""For so long it is told to people; one with nothing to say reports four times a second."""
DISTANCE: Final = 8_192.0
"""How far, in tokens by share, a worker may run ahead of the least tag that waits anywhere."""

Loads = dict[str, tuple[int, int]]
"""Requests and tokens in flight by replica."""


@dataclass(frozen=True, slots=True)
class Places:
    """How many all replicas have together. `margin` lies above `capacity`, for tenants that are owed a
    place."""

    capacity: int
    margin: int


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """The queue as one worker knows it: its own now, the others' as of their last report. `waiting`
    counts a request once for each choice."""

    waiting: int
    waiting_tokens: int
    places: int
    tokens_per_s: float | None  # that end while something waits; null: not known
    workers: int

    @property
    def wait_s(self) -> float | None:
        """What the last in line would wait, in turn; None: not known."""
        if not self.waiting_tokens:
            return 0.0
        return self.waiting_tokens / self.tokens_per_s if self.tokens_per_s else None


class Report(msgspec.Struct, kw_only=True):
    """All of a worker's state that others have to know. Lists are by class, highest first."""

    sequence: int  # grows with each report
    used: int  # places
    want: int  # more places, for all that waits
    chunk: int  # of them, as many as the next request needs at once
    want_owed: int  # places for tenants that hold less than an equal part
    spare: int  # places to keep at hand
    tenants: int  # that wait or hold a place
    waiting: float  # tokens
    rate: float  # tokens a second that end here; 0 = not known
    heads: list[float]  # least tags that wait
    floors: list[float] = msgspec.field(default_factory=lambda: [NOTHING] * 3)  # where newcomers begin
    charges: list[float]  # what classes were given since the last report, by share
    times: list[float]  # virtual times
    loads: Loads = {}


class Reply(msgspec.Struct, kw_only=True):
    """What a worker may use, and sums over all others."""

    limit: int = 0  # places for everyone
    limit_owed: int = 0  # places, of which those above `limit` are for tenants that are owed one
    served: list[float] = msgspec.field(default_factory=lambda: [0.0] * 3)
    times: list[float] = msgspec.field(default_factory=lambda: [0.0] * 3)
    heads: list[float] = msgspec.field(default_factory=lambda: [NOTHING] * 3)
    floors: list[float] = msgspec.field(default_factory=lambda: [NOTHING] * 3)
    wanted: int = 0  # places for what waits elsewhere
    waiting: float = 0.0  # tokens
    tenants: int = 0
    workers: int = 1  # this one included
    rate: float = 0.0
    loads: Loads = {}


class Elsewhere:
    """What the other workers said last."""

    def __init__(self) -> None:
        self.said = Reply()
        self._heard_at = float("-inf")

    def hear(self, reply: Reply, now: float) -> None:
        self.said, self._heard_at = reply, now

    def fresh(self, now: float) -> bool:
        return now - self._heard_at <= FRESH_S

    def told(self, now: float) -> Reply:
        """What still may be told to people: nothing, once the others can't be reached."""
        return self.said if now - self._heard_at <= TOLD_S else Reply()

    def waits(self, index: int, now: float) -> bool:
        """Whether something waits in a class in another worker."""
        return self.said.heads[index] >= 0 and self.fresh(now)

    def lets(self, lanes: Sequence[Lane], index: int, tag: float, now: float) -> bool:
        """Whether a request is in turn: neither its class nor its tag is further ahead than `DISTANCE` of
        what waits elsewhere."""
        if not self.fresh(now):
            return True
        heads = self.said.heads
        before = [lane.served for lane, head in zip(lanes, heads, strict=True) if head >= 0]
        if before and lanes[index].served > min(before) + DISTANCE:
            return False
        return heads[index] < 0 or tag <= heads[index] + DISTANCE
