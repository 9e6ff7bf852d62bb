"""Motet's own engine over HTTP/1.1 keep-alive (docs/ARCHITECTURE.md, seams: gateway ↔ engine)."""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import aiohttp
import msgspec

from gateway.replicas.driver import JournalPage, ReplicaView, Trailer, UpstreamFailed, as_view
from gateway.sockets import bound_reading

CONTROL_TIMEOUT_S = 5.0
MAX_CONTROL_BYTES = 16 * 1024 * 1024
READ_BUFFER_BYTES = 64 * 1024
"""What is read ahead of a slow client before the engine's socket is left to fill."""

PROBES = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""Of the kernel, in seconds and number: a replica's machine that is gone is noticed within a minute."""

LARGE_BODY_BYTES = 512 * 1024
"""From here a body is sent in pieces, so that a slow replica doesn't hold up the event loop."""

T = TypeVar("T")

_TRAILER = msgspec.json.Decoder(Trailer)
_PAGE = msgspec.json.Decoder(JournalPage)


def make_session(*, connect_timeout_s: float, max_connections: int) -> aiohttp.ClientSession:
    """One a worker, for all replicas. Nothing is decompressed, followed or kept but connections."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, limit_per_host=max_connections, keepalive_timeout=30, socket_factory=_probed_socket
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
    """One replica."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}", "accept-encoding": "identity"}

    async def open(
        self, path: str, body: bytes, headers: Mapping[str, str], first_byte_timeout_s: float
    ) -> MotetUpstream:
        try:
            async with asyncio.timeout(first_byte_timeout_s):
                response = await self._session.post(
                    self._url + path,
                    data=body if len(body) < LARGE_BODY_BYTES else io.BytesIO(body),
                    headers={**headers, **self._headers, "content-type": "application/json"},
                    allow_redirects=False,
                )
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
        state: Any = _decoded(msgspec.json.Decoder(), _expect(status, body, "/internal/state"))
        if not isinstance(state, dict):
            _nonsense("/internal/state", body)
        return as_view(state)

    async def journal(self, after: int, limit: int) -> JournalPage:
        params = {"after": str(after), "limit": str(limit)}
        status, body = await self._call("GET", "/internal/journal", params=params)
        return _decoded(_PAGE, _expect(status, body, "/internal/journal"))

    async def _call(self, method: str, path: str, **options: Any) -> tuple[int, bytes]:
        try:
            async with (
                asyncio.timeout(CONTROL_TIMEOUT_S),
                self._session.request(
                    method, self._url + path, headers=self._headers, allow_redirects=False, **options
                ) as response,
            ):
                body = await response.content.read(MAX_CONTROL_BYTES)
                while chunk := await response.content.read(MAX_CONTROL_BYTES - len(body)):
                    body += chunk
                return response.status, body
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise UpstreamFailed(f"{path}: {type(error).__name__}") from error


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
