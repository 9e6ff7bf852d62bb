"""HTTP/1.1 with limits on what precedes a body, which uvicorn leaves open. It comes before the token, so
whoever reaches the port could fill the memory with a head, or with trailers, that never end."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 64 * 1024  # beyond what came in the last read; trailers and chunk sizes count alike
HEAD_S: Final = 15.0  # from a connection's begin, or a request's first byte, to the end of its head


class BoundedHttp(HttpToolsProtocol):
    """One connection. Over either limit it is cut: a gateway of ours comes nowhere near."""

    _timer: asyncio.TimerHandle | None = None
    _progressed = False  # the bytes just read ended a head or a body, or were a body's
    _owed_bytes = 0  # read since the last progress

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._progressed = False
        super().data_received(data)
        self._owed_bytes = 0 if self._progressed else self._owed_bytes + len(data)
        if self._owed_bytes > MAX_HEAD_BYTES:
            self.transport.abort()
        elif self._timer is None and self.cycle is not None and self.cycle.response_complete:
            self._await_head()  # what came began no request, but ended the wait of keep-alive

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._progressed = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progressed = True
        super().on_message_complete()

    def _await_head(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
