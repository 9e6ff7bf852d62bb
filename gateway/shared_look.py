"""One look for all who ask for the same thing at a time: what strangers may ask for must not cost more for
being asked often."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedLook(Generic[T]):
    """Whoever asks while a look is under way gets what it finds, and so does who asks within `fresh_s` of its
    end (`failed_s`, when it failed; None: as long). A look goes on when those who asked for it leave. Owned
    by one event loop."""

    def __init__(self, fresh_s: float = 0.0, failed_s: float | None = None) -> None:
        self._fresh_s = fresh_s
        self._failed_s = fresh_s if failed_s is None else failed_s
        self._look: asyncio.Task[T] | None = None
        self._stands_until_s = 0.0

    async def __call__(self, look: Callable[[], Awaitable[T]]) -> T:
        """What `look`, or one before it that still stands, found or raised."""
        if self._look is None or (self._look.done() and time.monotonic() >= self._stands_until_s):
            self._look = asyncio.create_task(self._timed(look))
        return await asyncio.shield(self._look)

    async def _timed(self, look: Callable[[], Awaitable[T]]) -> T:
        stands_s = self._failed_s
        try:
            found = await look()
            stands_s = self._fresh_s
            return found
        finally:
            self._stands_until_s = time.monotonic() + stands_s
