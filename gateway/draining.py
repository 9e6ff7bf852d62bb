"""How a worker leaves: it says so, then it takes nothing new, then it waits for what is open, then it goes.

SIGTERM          /readyz answers 503, and answers end their connections; new ones are still taken
notice_s later   no new connection; each open one ends with its answer
all are through  the process ends
drain_s later, or a second SIGTERM: what is still open is told so (an error frame, or a 503) and metered
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final

import structlog
import uvicorn

log = structlog.get_logger(__name__)

SAME_SIGNAL_S: Final = 1.0
"""A supervisor that signals all processes of a service reaches a worker twice: also through its parent."""


@dataclass(slots=True)
class Leaving:
    """Whether this process is on its way out. One a worker; set once."""

    begun: bool = False


class DrainingServer(uvicorn.Server):
    """uvicorn's, with a notice before it stops listening and a second signal that cuts the drain short."""

    def __init__(self, config: uvicorn.Config, leaving: Leaving, *, notice_s: float) -> None:
        super().__init__(config)
        self._leaving = leaving
        self._notice_s = notice_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hurried = asyncio.Event()
        self._signalled: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Of SIGTERM and SIGINT alike: at a second SIGINT uvicorn would leave without closing the
        application. It comes between two instructions, whatever the event loop does."""
        now = time.monotonic()
        if self._signalled is None:
            self._signalled = now
            super().handle_exit(signal.SIGTERM, frame)
        elif self._loop is not None and now - self._signalled > SAME_SIGNAL_S:
            self._loop.call_soon_threadsafe(self._hurried.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        await super().main_loop()
        self._leaving.begun = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), self._notice_s)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("worker_draining", open_requests=len(self.server_state.tasks))
        cutting = asyncio.create_task(self._cut())
        try:
            await super().shutdown(sockets)
        finally:
            cutting.cancel()

    async def _cut(self) -> None:
        await self._hurried.wait()
        log.warning("drain_cut_short", open_requests=len(self.server_state.tasks))
        for task in list(self.server_state.tasks):
            task.cancel()
