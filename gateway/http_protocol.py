"""HTTP/1.1 with limits that uvicorn leaves open: on connections, on size, time and form of a request's head,
on requests that wait behind another of their connection, and on how long an answer may lie unread.

Without them a stranger without any key can hold a worker's memory (a head, or trailers, that never end;
thousands of requests in one packet; an answer that is never read) and all its file descriptors (connections
that say nothing). Bodies have their limits where they are read. The parser (llhttp, strict) refuses by itself
what two parties could read differently: both lengths, two lengths, bare line ends, folded headers.
"""

from __future__ import annotations

import asyncio
import resource
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog
from litestar.types import ASGIApp
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.direct_write import offer_direct_write
from gateway.envelope import API_POLICY, NO_STORE, SECURITY_HEADERS, Envelope, refusal
from gateway.errors import ApiError, BadRequest
from gateway.held_head import hold_head
from gateway.problems import JSON

log = structlog.get_logger(__name__)

OWN_FILES: Final = (
    512  # descriptors that connections never take: database, Redis, replicas, journals, uploads
)
MAX_HEAD_BYTES: Final = 64 * 1024  # beyond what came in the last read; trailers and chunk sizes count alike
MAX_HEADERS: Final = 100
MAX_URL_BYTES: Final = 8 * 1024
MAX_PIPELINED: Final = 16  # requests of one connection that wait for the answer before theirs
MIN_READ_BYTES_S: Final = 1024  # slowest reading of what lies ready
HEAD_S: Final = 15.0  # from a connection's begin, or a request's first byte, to the end of its head
LINGER_S: Final = 30.0  # for the rest of a body whose request was answered already


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Of one worker."""

    connections: int = 4_096  # if its file limit leaves so many
    write_timeout_s: float = 60.0  # in which something must be read of what lies ready


def connection_limit(wanted: int) -> int:
    """How many connections this process may hold; raises its file limit for them as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < files:
        soft = files if hard == resource.RLIM_INFINITY else min(files, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - OWN_FILES))


class HeadTooLarge(ApiError):
    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class UrlTooLong(ApiError):
    status = 414
    type = "invalid_request_error"
    code = "url_too_long"


class _TooManyRequests(Exception):
    """More wait on one connection than any client of ours sends; ends the parser's work."""


class BoundedHttp(HttpToolsProtocol):
    """One connection. Its timer runs while it owes a head, or the rest of a body that nobody waits for; its
    other one while an answer lies unread."""

    limits = ConnectionLimits()
    _timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _unread_bytes = 0  # when its timer was set
    _in_head = False  # between its first byte and its end
    _in_message = False  # between a head's end and its body's
    _progressed = False  # the bytes just read ended a head, or were a body's
    _owed_bytes = 0  # read since the last progress

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            log.warning("connection_refused", connections=len(self.connections))
            transport.abort()
            return
        self._expect(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self._expect_no_reading()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._progressed = False
        super().data_received(data)
        self._owed_bytes = 0 if self._progressed else self._owed_bytes + len(data)
        if self.transport.is_closing():
            return
        if self._owed_bytes > MAX_HEAD_BYTES:
            self._refuse(HeadTooLarge(f"The head of a request has at most {MAX_HEAD_BYTES} bytes."))
        elif self._timer is None and not self._in_message and (self._in_head or not self._is_answering()):
            self._expect(HEAD_S)  # blank lines begin no message, but end the keep-alive's own wait

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._expect_nothing()  # `data_received` sets the timer anew where not all of the head is here

    def on_header(self, name: bytes, value: bytes) -> None:
        """Not of a trailer: merged into the headers, which RFC 9110, 6.5.1, forbids, a client's word would
        stand where its proxy's is believed."""
        if not self._in_message:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._expect_nothing()
        self._in_head, self._in_message, self._progressed = False, True, True
        refused = self._fault()
        app: ASGIApp = self.app
        try:
            if refused is not None:
                self.app = Envelope(refusal(refused))
            super().on_headers_complete()
        finally:
            self.app = app
        if self.parser.should_upgrade():  # what follows on this connection is not read as HTTP any more
            self.cycle.keep_alive = False
        if len(self.pipeline) > MAX_PIPELINED:
            raise _TooManyRequests

    def on_body(self, body: bytes) -> None:
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_message, self._progressed = False, True
        self._expect_nothing()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_answering():
            self._expect_reading()
        if self._in_message and not self.transport.is_closing():
            self._expect(LINGER_S)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if not self.flow.write_paused:  # what is written from here on says nothing of what lay there before
            self._expect_no_reading()
        hold_head(cycle)
        offer_direct_write(cycle)
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        self._expect_no_reading()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._expect_reading()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn says of bytes that are no request; as every other error looks, and never within
        another answer."""
        self._refuse(BadRequest("This is no valid HTTP/1.1 request.", code="invalid_http"))

    def _fault(self) -> ApiError | None:
        """Why a head that was read is refused."""
        if len(self.url) > MAX_URL_BYTES:
            return UrlTooLong(f"A URL has at most {MAX_URL_BYTES} bytes.")
        if len(self.headers) > MAX_HEADERS:
            return HeadTooLarge(f"A request has at most {MAX_HEADERS} headers.")
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            return BadRequest("HTTP/1.1 is spoken here.", code="invalid_http")
        names = [name for name, _ in self.headers]
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        num_hosts = names.count(b"host")
        if num_hosts > 1 or (num_hosts == 0 and version == "1.1"):
            return BadRequest("A request names its host, once.", code="invalid_http")  # RFC 9112, 3.2
        if codings and (codings != [b"chunked"] or version == "1.0"):  # RFC 9112, 6.1
            return BadRequest("The only transfer encoding is 'chunked'.", code="invalid_http")
        if self.parser.should_upgrade() and (codings or b"content-length" in names):  # its body is not read
            return BadRequest("Send no Upgrade header: HTTP/1.1 is spoken here.", code="invalid_http")
        return None

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
            self._expect_reading()

    def _expect_reading(self) -> None:
        """Closing a connection waits for all that was written to go out, without end if nobody reads it."""
        self._expect_no_reading()
        self._unread_bytes = self.transport.get_write_buffer_size()
        if self._unread_bytes:
            self._unread_timer = self.loop.call_later(self.limits.write_timeout_s, self._look_at_unread)

    def _expect_no_reading(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _look_at_unread(self) -> None:
        """Nothing was written in between: either writing is paused, or the answer is complete."""
        read = self._unread_bytes - self.transport.get_write_buffer_size()
        if read < min(self._unread_bytes, MIN_READ_BYTES_S * self.limits.write_timeout_s):
            log.info("unread_answer_dropped", unread_bytes=self._unread_bytes - read)
            self.transport.abort()
        else:
            self._expect_reading()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, error: ApiError) -> None:
        if self._is_answering():
            if self.pipeline or self.cycle.response_started:  # nothing may stand within another answer
                self.transport.abort()
                return
            self.cycle.disconnected = True  # its own request is what is wrong: its answer is this one
            self.cycle.message_event.set()
        self.transport.write(raw_answer(error))
        self.transport.close()
        self._expect_reading()


def raw_answer(error: ApiError) -> bytes:
    """A whole answer that ends its connection, to bytes that began no request."""
    body = error.openai_body()
    headers = [
        (b"content-type", JSON.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *SECURITY_HEADERS,
        API_POLICY,
        NO_STORE,
    ]
    phrase = HTTPStatus(error.status).phrase
    lines = [b": ".join(pair) for pair in headers]
    return b"\r\n".join([f"HTTP/1.1 {error.status} {phrase}".encode(), *lines, b"", body])
