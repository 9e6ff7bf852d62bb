"""The client of a request whose answer may be given again: its bytes are taken as they go out, and when it
leaves, the answer goes on for a while for its retry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gateway.inference.client import KEEP_ALIVE, Client
from gateway.inference.keeping import Keeping


class KeepingClient(Client):
    """`deaf`: nobody hears any more, and what is written only counts."""

    keeping: Keeping | None = None
    leave_place: Callable[[], Awaitable[None]] | None = None
    deaf: bool = False

    async def write(self, data: bytes, *, more: bool = True) -> None:
        if more and self.keeping is not None:
            self.keeping.take(data)
        await super().write(data, more=more)

    def write_now(self, data: bytes) -> bool:
        if not self.deaf and not self._write_now(data):
            return False
        if self.keeping is not None:
            self.keeping.take(data)
        return True

    async def keep_alive(self) -> None:
        """No part of the answer."""
        await super().write(KEEP_ALIVE)

    async def _watch(self, walk: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        claim = self.keeping.claim if self.keeping is not None else None
        if claim is not None and not claim.ended and not self.finished:
            self.deaf = True
            if self.leave_place is not None:
                await self.leave_place()
            await claim.until_unwanted()
        if not self.finished:
            self.gone = True
            walk.cancel()

    async def _start(self, status: int, headers: Mapping[str, str]) -> None:
        if self.deaf:
            self.started = True
        else:
            await super()._start(status, headers)

    async def _put(self, data: bytes, more: bool) -> None:
        if self.deaf:
            self.finished = not more
        else:
            await super()._put(data, more)
