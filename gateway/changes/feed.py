"""The feed of one worker: a look each second at what changed, for all who follow together, and none while
nobody does. What it heard of it keeps for a while, so that who was cut off goes on where it was."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import randint
from typing import Final
from uuid import UUID

import structlog

from gateway.admin_auth.sessions import SessionStore
from gateway.changes.fleet_tail import FleetTail
from gateway.changes.follower import MOST_WAITING, Audience, Follower
from gateway.changes.log_tail import LogTail
from gateway.changes.metrics import CHANGES
from gateway.changes.schemas import Change, End, Opened, change_frame, opened_frame, reset_frame
from gateway.draining import Leaving
from gateway.errors import Unavailable
from gateway.ids import uuid7

log = structlog.get_logger(__name__)

LOOK_S: Final = 1.0
SESSIONS_S: Final = 2.0
"""Between two looks at whether the sessions of all who follow go on."""
UNSURE_S: Final = 10.0
"""How long Redis may not say so."""
RESET_S: Final = 5.0
"""Between two times that all are told to read all: one tenant's many changes must not keep all at it."""
LINGER_S: Final = 60.0
"""It goes on so long when the last has gone: who comes again finds what it missed."""
MOST_KEPT: Final = 2_000
OVERLAP_MS: Final = 5_000
"""Another worker, from which one comes, heard of a change so much later at most; it may come twice."""
RETRY_MS: Final = (1_000, 5_000)
"""When one that was cut off comes again: not all at the same moment."""


@dataclass(frozen=True, slots=True)
class _Kept:
    heard_ms: int  # Unix time
    change: Change
    frame: bytes


class Feed:
    """One a worker."""

    def __init__(self, logs: LogTail, fleet: FleetTail, sessions: SessionStore, leaving: Leaving) -> None:
        self._logs = logs
        self._fleet = fleet
        self._sessions = sessions
        self._leaving = leaving
        self._followers: set[Follower] = set()
        self._kept: deque[_Kept] = deque()
        self._covers_ms: int | None = None  # all since then is kept; None = nobody follows
        self._wanted = asyncio.Event()
        self._left_at = 0.0
        self._sure_at = 0.0
        self._away = False
        self._owes_reset = False
        self._reset_at = -RESET_S

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = {
            asyncio.create_task(self._forever(), name="changes"),
            asyncio.create_task(self._sessions_forever(), name="sessions-of-followers"),
        }
        try:
            yield
        finally:
            self._end_all("draining")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def join(self, audience: Audience, after: str | None) -> Follower:
        """To be left. Its first frame says whether what came `after` is all there."""
        if self._covers_ms is None:
            self._begin()
        place = None if after is None else _moment_of(after)
        now = _now_ms()
        known = place is not None and self._covers_ms is not None and self._covers_ms <= place <= now
        since = (place if known and place is not None else now) - OVERLAP_MS
        missed = [each.frame for each in self._kept if each.heard_ms >= since and audience.hears(each.change)]
        complete = (known or after is None) and len(missed) < MOST_WAITING
        follower = Follower(audience)
        follower.put_frame(opened_frame(Opened(uuid7(), complete), randint(*RETRY_MS)))  # noqa: S311  no secret
        for frame in missed if complete else ():
            follower.put_frame(frame)
        self._followers.add(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        self._followers.discard(follower)
        self._left_at = time.monotonic()

    async def look(self) -> None:
        """One round. What one source said is told at once, for it says it once: the other may not answer.
        Raises `Unavailable`."""
        sources: tuple[LogTail | FleetTail, ...] = (self._logs, self._fleet)
        for source in sources:
            changes, complete = await source.look()
            if not complete:
                self._kept.clear()
                self._covers_ms = _now_ms()
                self._owes_reset = True
                continue
            for change in changes:
                self._tell(change)
        if self._owes_reset and time.monotonic() - self._reset_at >= RESET_S:
            self._reset()

    async def check_sessions(self) -> None:
        """Ends who follows by a session that is over. Raises `Unavailable`."""
        by_cookie = [(each, each.audience.cookie) for each in self._followers]
        cookies = [cookie for _, cookie in by_cookie if cookie is not None]
        alive = await self._sessions.alive(cookies) if cookies else frozenset()
        self._sure_at = time.monotonic()
        for follower, cookie in by_cookie:
            if cookie is not None and cookie not in alive:
                follower.end("session_ended")

    def _begin(self) -> None:
        self._logs.forget()
        self._fleet.forget()
        self._covers_ms = _now_ms()
        self._owes_reset = False
        self._left_at = self._sure_at = time.monotonic()
        self._wanted.set()

    def _reset(self) -> None:
        """What was lost may have been of anything, rights too."""
        self._owes_reset, self._reset_at = False, time.monotonic()
        for follower in self._followers:
            follower.doubted = True
            follower.put_frame(reset_frame(uuid7()))

    def _rest(self) -> None:
        self._wanted.clear()
        self._kept.clear()
        self._covers_ms = None

    def _tell(self, change: Change) -> None:
        CHANGES.labels(change.kind).inc()
        kept = _Kept(_now_ms(), change, change_frame(change))
        self._kept.append(kept)
        if len(self._kept) > MOST_KEPT:
            self._covers_ms = self._kept.popleft().heard_ms + 1
        for follower in self._followers:
            follower.put(change, kept.frame)

    async def _forever(self) -> None:
        while True:
            await self._wanted.wait()
            if self._leaving.begun:
                self._end_all("draining")
            if not self._followers and time.monotonic() - self._left_at > LINGER_S:
                self._rest()
                continue
            try:
                await self.look()
                self._away = False
            except Unavailable:
                if not self._away:  # once an outage
                    log.warning("changes_not_read")
                self._away = True
            except Exception:
                log.exception("changes_failed")
            await asyncio.sleep(LOOK_S)

    async def _sessions_forever(self) -> None:
        while True:
            await self._wanted.wait()
            await asyncio.sleep(SESSIONS_S)
            try:
                await self.check_sessions()
            except Unavailable:
                if time.monotonic() - self._sure_at > UNSURE_S:
                    self._end_all("renew")
            except Exception:
                log.exception("sessions_of_followers_failed")

    def _end_all(self, reason: End) -> None:
        for follower in self._followers:
            follower.end(reason)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _moment_of(place: str) -> int | None:
    """Unix time of a UUIDv7, in milliseconds; None for anything else."""
    try:
        found = UUID(place)
    except ValueError:
        return None
    return found.int >> 80 if found.version == 7 else None
