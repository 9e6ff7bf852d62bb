"""One attempt that is open in the core: a bounded mailbox between the frame reader and its HTTP answer."""

from __future__ import annotations

import asyncio
import time

from engine.core.backlog import Backlog
from engine.core.protocol import AddRequest, Ended, Tokens
from engine.server.transcript import ChoiceEnds


class Attempt:
    """The reader puts frames, one handler takes them; anyone may wait for the end.

    Past `max_unread` tokens, frames are dropped and `overflowed` is set: the reader aborts the attempt, its
    answer ends with an error, so that a client that doesn't read costs bounded memory.
    """

    def __init__(self, add: AddRequest, max_unread: int, ends: ChoiceEnds | None = None) -> None:
        self.add = add
        self.ends = ends  # with `add.confirm_choices`
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.overflowed = False
        self.started_s = time.monotonic()
        self.last_token_s: float | None = None
        self._max_unread = max_unread
        self._frames: Backlog[Tokens | Ended] = Backlog()
        self._unread = 0
        self._waker: asyncio.Future[None] | None = None
        self._left = False

    @property
    def id(self) -> tuple[str, int]:
        return self.add.request, self.add.attempt

    def put(self, frame: Tokens | Ended) -> None:
        if isinstance(frame, Ended):
            if not self.ended.done():
                self.ended.set_result(frame)
        else:
            if self._left or self.overflowed:
                return
            self._unread += len(frame.tokens)
            if self._unread > self._max_unread:
                self.overflowed = True
                self._frames.take()
                return
        self._frames.add(frame)
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def take(self) -> list[Tokens | Ended]:
        """What has come since the last call, at least one frame. While a client reads slowly the tokens of a
        choice gather, and come as one frame."""
        if not self._frames:
            self._waker = asyncio.get_running_loop().create_future()
            await self._waker
            self._waker = None
        self._unread = 0
        return self._frames.take()

    def leave(self) -> None:
        """Nobody takes frames any more."""
        self._left = True
        self._frames.take()
