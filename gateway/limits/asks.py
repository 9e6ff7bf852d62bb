"""What is asked of a store of limits, Redis or one process, and what it answers. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from gateway.limits.amounts import NO_TOKENS, Tokens
from gateway.limits.levels import Bucket, Counter, Plan
from gateway.redis import RedisKey

ADMITTED = 1
REFUSED = 0
ENDED = -1
UNSEEDED = -2


class Left(msgspec.Struct, frozen=True):
    """Of one bucket, after the call."""

    remaining: int
    reset_us: int  # until it is full


class Answer(msgspec.Struct, frozen=True):
    """`which` counts through buckets, leases and counters of the call, from 0; it is meant where `state` is
    REFUSED or UNSEEDED."""

    state: int
    epoch: int | None  # None = Redis knows of no change
    which: int
    available: int  # units of 10⁻¹² where a budget refuses
    wait_us: int
    left: tuple[Left, ...]  # of the call's buckets
    tag: float | None = None  # its place in its tenant's line
    credit: float = 0.0


class Place(msgspec.Struct, frozen=True):
    """A tenant's line in the queue, and a request's length there (`gateway/queueing/share.lua`)."""

    line: RedisKey
    floor: float
    length: float
    served: bool = False


@dataclass(frozen=True, slots=True)
class Looked:
    """What a request would be told, and what is left of everything now."""

    answer: Answer
    running: tuple[int, ...]  # by lease
    spent: tuple[tuple[int, int] | None, ...]  # by counter: (settled, reserved) in units; None = not known


class Store(Protocol):
    """The scripts, or their twin. All raise `Unavailable`."""

    async def admit(self, plan: Plan, id: str, *, forced: bool = False) -> Answer: ...

    async def reserve(
        self,
        plan: Plan,
        id: str,
        tokens: Tokens,
        money: int,
        place: Place | None = None,
        *,
        forced: bool = False,
    ) -> Answer: ...

    async def settle(
        self, plan: Plan, id: str, tokens: Tokens, money: int, place: Place | None = None
    ) -> tuple[bool, float | None]:
        """Whether this call ended it, and its tenant's credit in the line."""
        ...

    async def renew(self, plan: Plan, id: str, *, places: bool) -> bool: ...

    async def look(self, plan: Plan, tokens: Tokens = NO_TOKENS, money: int = 0) -> Looked: ...

    async def seed(self, counter: Counter, units: int) -> tuple[int, int]:
        """(settled, reserved), in units."""
        ...

    async def charge(self, taken: Sequence[tuple[Bucket, int]]) -> None: ...

    async def leave_place(self, plan: Plan, id: str) -> None: ...
