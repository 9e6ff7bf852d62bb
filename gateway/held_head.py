"""Sends an answer's head with the first bytes of its body: one system call and one packet in place of two.
ASGI lets a server wait so long ("HTTP: response start")."""

from __future__ import annotations

import asyncio
import weakref
from typing import cast

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def hold_head(cycle: RequestResponseCycle) -> None:
    """Before the application is called. Answers to HEAD have nothing that their head could wait for."""
    if cycle.scope["method"] != "HEAD":
        cycle.transport = cast(asyncio.Transport, _HeldHead(cycle))


class _HeldHead:
    """Stands in for the transport of one exchange until its body begins; then the exchange has the transport
    itself again."""

    __slots__ = ("_cycle", "_head", "_transport")

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = weakref.ref(cycle)  # which holds this
        self._transport = cycle.transport
        self._head: bytes | None = None

    def write(self, data: bytes) -> None:
        cycle = self._cycle()
        assert cycle is not None
        if self._head is None and cycle.response_started:
            self._head = data
        elif self._head is None:  # 100 Continue
            self._transport.write(data)
        else:
            cycle.transport = self._transport
            self._transport.write(self._head + data)

    def close(self) -> None:
        if self._head is not None:
            self.write(b"")
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
