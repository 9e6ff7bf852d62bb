"""One who follows: what it may hear of, and what waits to be sent to it, up to a bound."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.changes.kinds import heard_by
from gateway.changes.schemas import Change, End
from gateway.principal import Role

MOST_WAITING: Final = 256
"""Frames; who does not take them so long is dropped, and reads all when it comes again."""


@dataclass(frozen=True, slots=True)
class Audience:
    """`tenant` None: an operator, who hears of all. `cookie`: of its session; None = a token opened it."""

    role: Role
    tenant: UUID | None = None
    cookie: str | None = None

    def hears(self, change: Change) -> bool:
        """Of its tenant only, and of what its role may read there."""
        if self.tenant is None:
            return self.role is Role.OPERATOR
        return change.tenant == self.tenant and heard_by(change.kind, self.role)

    def touched_by(self, change: Change) -> bool:
        """Whether its own rights may be others now."""
        if change.kind == "account":
            return True
        return change.kind in ("member", "tenant") and self.tenant in (None, change.tenant)


class Follower:
    """Owned by the event loop of its worker; the feed puts, its stream takes."""

    def __init__(self, audience: Audience) -> None:
        self.audience = audience
        self.ended: End | None = None
        self.doubted = False  # its rights are to be looked at before anything more is sent
        self._waiting: list[bytes] = []
        self._news = asyncio.Event()

    def put(self, change: Change, frame: bytes) -> None:
        if self.audience.touched_by(change):
            self.doubted = True
            self._news.set()
        if self.audience.hears(change):
            self.put_frame(frame)

    def put_frame(self, frame: bytes) -> None:
        if self.ended is not None:
            return
        if len(self._waiting) >= MOST_WAITING:
            self.end("slow")
            return
        self._waiting.append(frame)
        self._news.set()

    def end(self, reason: End) -> None:
        """Nothing more is sent but that; of what waits, nothing."""
        if self.ended is None:
            self.ended = reason
            self._waiting.clear()
            self._news.set()

    async def wait(self, timeout_s: float) -> bool:
        """Until there is news, at most so long; whether there is."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True

    def take(self) -> bytes:
        """What waits; empty when nothing does."""
        taken, self._waiting = b"".join(self._waiting), []
        return taken
