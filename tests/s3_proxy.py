"""A proxy before an S3 server that counts requests and can do something at any of them: kill the server, or
who asks, just before it is passed on or just before it is answered; answer in its place; be slow; cut an
answer."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

from tests.s3_server import S3Server

_HOP: Final = frozenset({"connection", "keep-alive", "expect", "transfer-encoding"})
ANSWER_S: Final = 30.0


@dataclass(frozen=True)
class Fault:
    """What happens to requests from number `first` on, as long as there are `times` left. With `method` only
    its requests count."""

    first: int = 1
    times: int = 1_000_000
    method: str = ""
    before: Callable[[], None] | None = None  # done before it is passed on
    after: Callable[[], None] | None = None  # done when the server has done it, before the answer
    status: int | None = None  # answered in the server's place
    delay_s: float = 0.0
    cut: bool = False  # half of the answer's body, and the connection ends


@dataclass
class Proxy:
    server: S3Server
    seen: list[str] = field(default_factory=list)  # method and path, in order
    fault: Fault | None = None
    asker: int = 0  # the port of whose request met the fault last
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, fault: Fault | None = None) -> None:
        """Counts anew."""
        with self._lock:
            self.seen.clear()
            self.fault = fault

    def note(self, method: str, path: str, port: int) -> Fault | None:
        with self._lock:
            self.seen.append(f"{method} {path}")
            fault = self.fault
            if fault is None or not method.startswith(fault.method):
                return None
            number = sum(each.startswith(fault.method) for each in self.seen)
            if not fault.first <= number < fault.first + fault.times:
                return None
            self.asker = port
        return fault

    @property
    def upstream(self) -> str:
        return urlsplit(self.server.endpoint).netloc


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def do_any(self) -> None:
        fault = self.proxy.note(self.command, self.path, self.client_address[1])
        body = self._body()
        if fault is not None:
            time.sleep(fault.delay_s)
            if fault.before is not None:
                fault.before()
            if fault.status is not None:
                self._say(fault.status, [], b"<Error><Code>Injected</Code></Error>")
                return
        try:
            answer, told = self._pass_on(body)
        except (OSError, http.client.HTTPException):
            self.close_connection = True
            return
        if fault is not None and fault.after is not None:
            fault.after()
        self._say(answer.status, answer.getheaders(), told, cut=fault is not None and fault.cut)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_any  # noqa: N815  as http.server names them

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("transfer-encoding", ""):
            return b"".join(self._chunks())
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0], 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _pass_on(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=ANSWER_S)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():  # the host too: it is signed
                if name.lower() not in _HOP | {"content-length"}:
                    connection.putheader(name, value)
            connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def _say(self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False) -> None:
        lengths = [value for name, value in headers if name.lower() == "content-length"]
        length = lengths[0] if self.command == "HEAD" and lengths else str(len(body))
        with suppress(OSError):
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in _HOP | {"content-length"}:
                    self.send_header(name, value)
            self.send_header("content-length", length)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if cut else body)
            if cut:
                self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Listening(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Who asked was killed."""


@contextmanager
def proxied(server: S3Server) -> Iterator[tuple[Proxy, S3Server]]:
    """The proxy, and the server as it is seen through it."""
    proxy = Proxy(server)
    handler = type("Handler", (_Handler,), {"proxy": proxy})
    listening = _Listening(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy, replace(server, endpoint=f"http://127.0.0.1:{listening.server_address[1]}")
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()
