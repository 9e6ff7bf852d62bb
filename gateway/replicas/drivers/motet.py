"""Motet's own engine over HTTP/1.1 keep-alive (docs/ARCHITECTURE.md, seams: gateway ↔ engine).

A replica's token is changed on two machines, never at the same moment. So the driver knows the present one
and the one before; refused with one (401, by the engine's door, before anything ran), it tries the other, and
stays with what was taken.
"""

from __future__ import annotations

import asyncio
import io
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn, TypeVar

import aiohttp
import msgspec

from gateway.replicas.driver import JournalPage, ReplicaView, Trailer, UpstreamFailed, read_view
from gateway.sockets import bound_reading

CONTROL_TIMEOUT_S = 5.0
MAX_CONTROL_BYTES = 16 * 1024 * 1024
READ_BUFFER_BYTES = 64 * 1024
"""What is read ahead of a slow client before the engine's socket is left to fill."""

PROBES = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""Of the kernel, in seconds and number: a replica's machine that is gone is noticed within a minute."""

MAX_STATE_BYTES = 4 * 1024 * 1024
SILENT_S = 12.0
"""A stream of states says something each five seconds; silent so long, it is broken."""

LARGE_BODY_BYTES = 512 * 1024
"""From here a body is sent in pieces, so that a slow replica doesn't hold up the event loop."""

_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)

T = TypeVar("T")

_TRAILER = msgspec.json.Decoder(Trailer)
_PAGE = msgspec.json.Decoder(JournalPage)


def make_session(
    *, connect_timeout_s: float, max_connections: int, tls: ssl.SSLContext | None = None
) -> aiohttp.ClientSession:
    """One a worker, for all replicas. Nothing is decompressed, followed or kept but connections. `tls`: what
    replicas with an https:// URL have to prove, and what is shown to them."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0,
            limit_per_host=max_connections,
            keepalive_timeout=30,
            socket_factory=_probed_socket,
            ssl=tls if tls is not None else True,
        ),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER_BYTES,
        skip_auto_headers={"User-Agent", "Accept-Encoding"},
        trust_env=False,
    )


def _probed_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Breaks when the other machine is gone, which a silent connection would not notice."""
    probed = socket.socket(*address[:3])
    bound_reading(probed)
    probed.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in PROBES:
        probed.setsockopt(socket.IPPROTO_TCP, option, value)
    return probed


class MotetUpstream:
    """One answer of the engine."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read_some(self, timeout_s: float) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._response.content.readany()
        except TimeoutError:  # ours; aiohttp's own time-outs are off
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamFailed(f"the replica broke off: {type(error).__name__}") from error

    async def close(self) -> None:
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


class MotetDriver:
    """One replica. `tokens`: the present one, and the one before while it is changed."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *tokens: str) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._tokens: tuple[str, ...] = ()
        self._headers: dict[str, str] = {}
        self.set_tokens(tokens)

    def set_tokens(self, tokens: Sequence[str]) -> None:
        """The first one is tried first, from the next request on."""
        if tuple(tokens) != self._tokens:
            self._tokens = tuple(tokens)
            self._headers = _headers_of(tokens[0] if tokens else "")

    async def open(
        self, path: str, body: bytes, headers: Mapping[str, str], first_byte_timeout_s: float
    ) -> MotetUpstream:
        try:
            async with asyncio.timeout(first_byte_timeout_s):
                response = await self._post(path, body, headers, self._headers)
                if response.status == 401 and (other := self._other(self._headers)) is not None:
                    response.close()
                    response = await self._post(path, body, headers, other)
                    self._prefer(other, response.status)
        except aiohttp.ConnectionTimeoutError as error:  # is a TimeoutError too
            raise UpstreamFailed("the replica takes no connection in time", sent=False) from error
        except TimeoutError:
            raise UpstreamFailed("the replica did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            sent = not isinstance(error, aiohttp.ClientConnectorError)
            raise UpstreamFailed(
                f"the replica can't be reached: {type(error).__name__}", sent=sent
            ) from error
        return MotetUpstream(response)

    async def _post(
        self, path: str, body: bytes, headers: Mapping[str, str], ours: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        return await self._session.post(
            self._url + path,
            data=body if len(body) < LARGE_BODY_BYTES else io.BytesIO(body),
            headers={**headers, **ours, "content-type": "application/json"},
            allow_redirects=False,
        )

    async def abort(self, request_id: str, attempt: int) -> Trailer | None:
        path = f"/internal/requests/{request_id}/abort"
        status, body = await self._call("POST", path, params={"attempt": str(attempt)})
        if status == 404:
            return None
        return _decoded(_TRAILER, _expect(status, body, path))

    async def prefetch(self, artefact: str, owner: str) -> None:
        path = f"/internal/adapters/{artefact}/prefetch"
        status, body = await self._call("POST", path, json={"owner": owner})
        _expect(status, body, path)

    async def retire(self, artefact: str, owner: str) -> None:
        # the engine knows the owner of those in use; its disk may hold others, from before it started
        path = f"/internal/adapters/{artefact}"
        status, body = await self._call("DELETE", path, params={"owner": owner})
        _expect(status, body, path)

    async def ready(self) -> bool:
        status, _ = await self._call("GET", "/readyz")
        return status == 200

    async def view(self) -> ReplicaView:
        status, body = await self._call("GET", "/internal/state", params={"once": "1"})
        return _view_of(_expect(status, body, "/internal/state"))

    async def views(self) -> AsyncIterator[ReplicaView]:
        path = "/internal/state"
        try:
            async with self._asked("GET", path, {"timeout": _NO_TIMEOUT}) as response:
                if response.status != 200 or response.content_type != "text/event-stream":
                    return
                buffer = b""
                while True:
                    async with asyncio.timeout(SILENT_S):
                        chunk = await response.content.readany()
                    if not chunk:
                        return
                    buffer += chunk
                    if len(buffer) > MAX_STATE_BYTES:
                        _nonsense(path, buffer)
                    *events, buffer = buffer.split(b"\n\n")
                    for data in (_data_of(event) for event in events):
                        if data:
                            yield _view_of(data)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UpstreamFailed(f"{path}: {type(error).__name__}") from error

    async def journal(self, after: int, limit: int) -> JournalPage:
        params = {"after": str(after), "limit": str(limit)}
        status, body = await self._call("GET", "/internal/journal", params=params)
        return _decoded(_PAGE, _expect(status, body, "/internal/journal"))

    async def _call(self, method: str, path: str, **options: Any) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(CONTROL_TIMEOUT_S), self._asked(method, path, options) as response:
                body = await response.content.read(MAX_CONTROL_BYTES)
                while chunk := await response.content.read(MAX_CONTROL_BYTES - len(body)):
                    body += chunk
                return response.status, body
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UpstreamFailed(f"{path}: {type(error).__name__}") from error

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, options: Mapping[str, Any]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        ours = self._headers
        for last in (False, True):
            async with self._session.request(
                method, self._url + path, headers=ours, allow_redirects=False, **options
            ) as response:
                other = None if last or response.status != 401 else self._other(ours)
                if other is None:
                    if last:
                        self._prefer(ours, response.status)
                    yield response
                    return
                ours = other

    def _other(self, refused: Mapping[str, str]) -> dict[str, str] | None:
        """The headers with the token that was not tried."""
        return next((made for made in map(_headers_of, self._tokens) if made != refused), None)

    def _prefer(self, headers: dict[str, str], status: int) -> None:
        """What the replica took is what it is asked with from now on."""
        if status != 401:
            self._headers = headers


def _headers_of(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", "accept-encoding": "identity"}


def _data_of(event: bytes) -> bytes:
    """Of one server-sent event."""
    return b"\n".join(line[6:] for line in event.split(b"\n") if line.startswith(b"data: "))


def _view_of(body: bytes) -> ReplicaView:
    try:
        return read_view(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        _nonsense("/internal/state", body)


def _expect(status: int, body: bytes, path: str) -> bytes:
    if status >= 300:
        raise UpstreamFailed(f"{path} answered {status}: {body[:200]!r}")
    return body


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        _nonsense("the replica", body)


def _nonsense(where: str, body: bytes) -> NoReturn:
    raise UpstreamFailed(f"{where} answered what can't be read: {body[:200]!r}")
