"""Motet's own engine over HTTP/1.1 keep-alive (docs/ARCHITECTURE.md, seams: gateway ↔ engine).

A replica's token is changed on two machines, never at the same moment. So the driver knows the present one
and the one before; refused with one (401, by the engine's door, before anything ran), it tries the other, and
stays with what was taken.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Self, TypeVar

import aiohttp
import msgspec

from gateway.replicas.driver import (
    EngineVerdict,
    JournalPage,
    NoVerdict,
    Purge,
    ReplicaView,
    Trailer,
    UpstreamFailed,
    read_view,
)
from gateway.replicas.http_client import IDLE_S, READ_AHEAD_BYTES, HttpPool, HttpUpstream, probed_socket

CONTROL_TIMEOUT_S = 5.0
PROOF_TIMEOUT_S = 150.0
"""The engine gives up before (503); this is for one that says nothing."""
CORE_LOST = "core_lost"
"""The code of a replica whose core ended within a proof, and that lived on to say so: it broke off."""
PURGE_WAIT_MS = 3_500
"""How long a replica may wait for requests that run on an adapter that is purged, before it says that it
holds it: within `CONTROL_TIMEOUT_S`, so that it is heard. It is asked again."""
MAX_CONTROL_BYTES = 16 * 1024 * 1024
MAX_STATE_BYTES = 4 * 1024 * 1024
SILENT_S = 12.0
"""A stream of states says something each five seconds; silent so long, it is broken."""

_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)

T = TypeVar("T")

_TRAILER = msgspec.json.Decoder(Trailer)
_PAGE = msgspec.json.Decoder(JournalPage)
_VERDICT = msgspec.json.Decoder(EngineVerdict)


class _Problem(msgspec.Struct, frozen=True):
    """What of problem details says why."""

    code: str = "unavailable"
    detail: str = ""


_PROBLEM = msgspec.json.Decoder(_Problem)


class ReplicaSession:
    """One a worker, for all replicas: the connections for control calls, and those for answers. `tls`: what
    replicas with an https:// URL have to prove, and what is shown to them."""

    def __init__(
        self, *, connect_timeout_s: float, max_connections: int, tls: ssl.SSLContext | None = None
    ) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._max_connections = max_connections
        self._tls = tls
        self._pools: list[HttpPool] = []

    async def __aenter__(self) -> Self:
        self.control = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                limit_per_host=self._max_connections,
                keepalive_timeout=IDLE_S,
                socket_factory=lambda address: probed_socket(*address[:3]),
                ssl=self._tls if self._tls is not None else True,
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=READ_AHEAD_BYTES,
            skip_auto_headers={"User-Agent", "Accept-Encoding"},
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for pool in self._pools:
            await pool.close()
        await self.control.close()

    def pool(self, url: str) -> HttpPool:
        """The connections for answers of one replica."""
        pool = HttpPool(
            url,
            connect_timeout_s=self._connect_timeout_s,
            max_connections=self._max_connections,
            tls=self._tls,
        )
        self._pools.append(pool)
        return pool

    def forget(self, pool: HttpPool) -> None:
        if pool in self._pools:
            self._pools.remove(pool)


class MotetDriver:
    """One replica. `tokens`: the present one, and the one before while it is changed."""

    def __init__(self, session: ReplicaSession, url: str, *tokens: str) -> None:
        self._session = session
        self._pool = session.pool(url)
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
    ) -> HttpUpstream:
        upstream = await self._pool.post(path, {**headers, **self._headers}, body, first_byte_timeout_s)
        if upstream.status == 401 and (other := self._other(self._headers)) is not None:
            await upstream.close()
            upstream = await self._pool.post(path, {**headers, **other}, body, first_byte_timeout_s)
            self._prefer(other, upstream.status)
        return upstream

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

    async def prove(self, artefact: str, owner: str, longest: bool) -> EngineVerdict:
        path, asked = "/internal/proofs", {"artefact": artefact, "owner": owner, "longest": longest}
        status, body = await self._call("POST", path, PROOF_TIMEOUT_S, json=asked)
        if status == 503:
            problem = _decoded(_PROBLEM, body)
            if problem.code == CORE_LOST:
                raise UpstreamFailed(f"{path}: {problem.detail[:200]}")
            raise NoVerdict(problem.code[:64], problem.detail[:200])
        return _decoded(_VERDICT, _expect(status, body, path))

    async def keep(self, artefact: str, owner: str, keep_ms: int, *, on_device: bool) -> None:
        path = f"/internal/adapters/{artefact}/prefetch"
        wish = {"owner": owner, "keep_ms": keep_ms, "on_device": on_device}
        status, body = await self._call("POST", path, json=wish)
        _expect(status, body, path)

    async def retire(self, artefact: str, owner: str) -> None:
        # the engine knows the owner of those in use; its disk may hold others, from before it started
        path = f"/internal/adapters/{artefact}"
        status, body = await self._call("DELETE", path, params={"owner": owner})
        _expect(status, body, path)

    async def purge(self, artefact: str, owner: str) -> Purge:
        path = f"/internal/adapters/{artefact}"
        status, body = await self._call(
            "DELETE", path, params={"owner": owner, "purge": "1", "within_ms": str(PURGE_WAIT_MS)}
        )
        if status in (409, 503):
            return Purge.HELD
        if status == 202:  # an engine of before there were purges: it forgets, when nothing runs on it
            view = await self.view()
            return Purge.HELD if artefact in view.device | view.host else Purge.UNVERIFIED
        _expect(status, body, path)
        status, body = await self._call("GET", path, params={"owner": owner})
        if status == 404:
            return Purge.DONE
        _expect(status, body, path)
        return Purge.HELD

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

    async def _call(
        self, method: str, path: str, timeout_s: float = CONTROL_TIMEOUT_S, **options: Any
    ) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(timeout_s), self._asked(method, path, options) as response:
                body = await response.content.read(MAX_CONTROL_BYTES)
                while chunk := await response.content.read(MAX_CONTROL_BYTES - len(body)):
                    body += chunk
                return response.status, body
        except aiohttp.ClientConnectorError as error:
            raise UpstreamFailed(f"{path}: {type(error).__name__}", sent=False) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            unsent = isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
            raise UpstreamFailed(f"{path}: {type(error).__name__}", sent=not unsent) from error

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, options: Mapping[str, Any]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        ours = self._headers
        for last in (False, True):
            async with self._session.control.request(
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
