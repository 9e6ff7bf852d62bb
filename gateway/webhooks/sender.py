"""One try to deliver: a POST to an address that was looked at, and the status that came back.

Every connection is new. Its address is looked at when the name is resolved, when the socket is made (which an
address written in the URL comes to directly), and once it is connected, before a byte is sent. Redirects are
answers like any other, and no good ones. Of an answer nothing but its status and its `Retry-After` is read.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.webhooks.destinations import Destination, DestinationRefused, DestinationRules, address_of

TOTAL_S: Final = 10.0
CONNECT_S: Final = 5.0
MAX_LINE_BYTES: Final = 8_190  # of an answer's status line, and of each of its headers
MAX_LOOKUPS: Final = 32  # of names at a time; more wait, within their own time
MAX_DIGITS: Final = 9  # of a `Retry-After`
READ_BYTES: Final = 4_096
"""Buffered of an answer's body, which nobody reads."""


@dataclass(frozen=True, slots=True)
class Tried:
    """`status` None: no answer came, and `error` says why. `gone`: the receiver wants no more (410)."""

    status: int | None
    error: str | None
    took_ms: int
    retry_after_s: float = 0.0  # of a receiver that named a time

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def gone(self) -> bool:
        return self.status == 410


class Sender:
    """Owned by control's leader. `resolver` is for tests of what a name server may do."""

    def __init__(
        self,
        rules: DestinationRules,
        *,
        resolver: Callable[[], AbstractResolver] | None = None,
        total_s: float = TOTAL_S,
    ) -> None:
        self._rules = rules
        self._resolver = resolver or SystemResolver
        self._timeout = aiohttp.ClientTimeout(total=total_s, connect=min(CONNECT_S, total_s))

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Tried:
        """Raises nothing but what cancels it: whatever happens to a try is its outcome."""
        began = time.monotonic()
        try:
            status, retry_after_s = await self._post(self._rules.destination(url), headers, body)
            return Tried(status, None, _since_ms(began), retry_after_s)
        except DestinationRefused as refused:
            error = f"refused: {refused}"
        except TimeoutError:
            error = f"no answer within {self._timeout.total:.0f} s"
        except (aiohttp.ClientError, OSError, ValueError) as failed:
            error = reason_of(failed)
        return Tried(None, error, _since_ms(began))

    async def _post(self, to: Destination, headers: Mapping[str, str], body: bytes) -> tuple[int, float]:
        connector = GuardedConnector(self._rules, to, self._resolver())
        async with (
            aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                max_line_size=MAX_LINE_BYTES,
                max_field_size=MAX_LINE_BYTES,
                read_bufsize=READ_BYTES,
            ) as session,
            session.post(to.url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            return answer.status, _asked_to_wait_s(answer.headers.get("retry-after", ""))


class SystemResolver(AbstractResolver):
    """The system's, in threads of its own: a name server that never answers holds one for a while, and those
    that the rest of the process waits for must not be among them."""

    _threads = ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix="webhook-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises OSError."""
        look_up = partial(socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [
            ResolveResult(
                hostname=host,
                host=str(place[0]),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST,
            )
            for kind, _, protocol, _, place in found
        ]

    async def close(self) -> None:
        """Nothing is its own."""


class GuardedConnector(aiohttp.TCPConnector):
    """Of one try to one destination."""

    def __init__(self, rules: DestinationRules, to: Destination, resolver: AbstractResolver) -> None:
        self._rules = rules
        self._to = to
        super().__init__(
            resolver=_CheckingResolver(rules, to, resolver),
            socket_factory=self._socket,
            use_dns_cache=False,
            force_close=True,
            limit=1,
        )

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, place = address
        self._rules.require(self._to, address_of(str(place[0])))
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  the method's own name for it
    ) -> Any:
        connection = await super().connect(req, traces, timeout)
        transport = connection.transport
        peer = None if transport is None else transport.get_extra_info("peername")
        try:
            self._rules.require(self._to, address_of(str(peer[0]) if peer else ""))
        except DestinationRefused:
            connection.close()
            raise
        return connection


class _CheckingResolver(AbstractResolver):
    """Refuses a name as soon as one of its addresses is refused: no honest one has both kinds."""

    def __init__(self, rules: DestinationRules, to: Destination, inner: AbstractResolver) -> None:
        self._rules = rules
        self._to = to
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for each in found:
            self._rules.require(self._to, address_of(each["host"]))
        return found

    async def close(self) -> None:
        await self._inner.close()


def _since_ms(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


def _asked_to_wait_s(value: str) -> float:
    """Seconds from now, of a `Retry-After` in either form (RFC 9110, 10.2.3); 0 for what is neither."""
    if value.isascii() and value.isdigit():
        return float(value[:MAX_DIGITS])
    try:
        at = parsedate_to_datetime(value)
        return max(0.0, (at - datetime.now(at.tzinfo)).total_seconds())
    except (ValueError, OverflowError):
        return 0.0


def reason_of(error: Exception) -> str:
    """Without the address: what lies inside is not for tenants to learn from errors."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "its name can't be resolved"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "its certificate is not valid, or it speaks no TLS"
        case aiohttp.ClientConnectorError():
            return "no connection" + (
                f": {os.strerror(error.os_error.errno)}" if error.os_error.errno else ""
            )
        case aiohttp.ServerDisconnectedError():
            return "it closed the connection without an answer"
        case asyncio.IncompleteReadError():
            return "it broke off"
        case _:
            return f"no answer that can be read ({type(error).__name__})"
