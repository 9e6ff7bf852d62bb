"""HTTP/1.1 with limits that uvicorn leaves open: on connections, and on size and time of a request's head.

Without them a stranger without any key can hold a worker's memory (a head, or trailers, that never end) and
all its file descriptors (connections that say nothing). Bodies have their limits where they are read.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Final

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.errors import ApiError

log = structlog.get_logger(__name__)

MAX_CONNECTIONS: Final = 4_096  # of one worker, if its file limit leaves so many
OWN_FILES: Final = (
    512  # descriptors that connections never take: database, Redis, replicas, journals, uploads
)
MAX_HEAD_BYTES: Final = 64 * 1024  # beyond what came in the last read; trailers and chunk sizes count alike
HEAD_S: Final = 15.0  # from a connection's begin, or a request's first byte, to the end of its head
LINGER_S: Final = 30.0  # for the rest of a body whose request was answered already


def connection_limit() -> int:
    """How many connections this process may hold; raises its file limit for them as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, soft - OWN_FILES))


class HeadTooLarge(ApiError):
    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class BoundedHttp(HttpToolsProtocol):
    """One connection. Its timer runs while it owes a head, or the rest of a body that nobody waits for."""

    max_connections = MAX_CONNECTIONS
    _timer: asyncio.TimerHandle | None = None
    _in_message = False  # between a head's end and its body's
    _progressed = False  # the bytes just read ended a head, or were a body's
    _owed_bytes = 0  # read since the last progress

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            log.warning("connection_refused", connections=len(self.connections))
            transport.abort()
            return
        self._expect(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._progressed = False
        super().data_received(data)
        self._owed_bytes = 0 if self._progressed else self._owed_bytes + len(data)
        if self.transport.is_closing():
            return
        if self._owed_bytes > MAX_HEAD_BYTES:
            self._refuse_head()
        elif self._timer is None and not self._in_message and not self._is_answering():
            self._expect(HEAD_S)  # blank lines begin no message, but end the keep-alive's own wait

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect(HEAD_S)

    def on_headers_complete(self) -> None:
        self._expect_nothing()
        self._in_message = self._progressed = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message, self._progressed = False, True
        self._expect_nothing()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._in_message and not self.transport.is_closing():
            self._expect(LINGER_S)

    def _expect(self, within_s: float) -> None:
        self._expect_nothing()
        self._timer = self.loop.call_later(within_s, self._too_late)

    def _expect_nothing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        if self._is_answering():  # a pipelined head may wait for the answer before it
            self._expect(HEAD_S)
        elif not self.transport.is_closing():
            self.transport.close()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse_head(self) -> None:
        if self._is_answering():  # nothing may stand within another answer
            self.transport.abort()
            return
        body = HeadTooLarge(f"The head of a request has at most {MAX_HEAD_BYTES} bytes.").openai_body()
        head = (
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
