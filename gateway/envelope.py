"""The outermost ASGI layer: every request gets an id, every answer the same headers, every log line both."""

from __future__ import annotations

import asyncio
import re
import time
from functools import lru_cache
from typing import Final
from uuid import UUID

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPSendMessage, Message, Receive, Scope, Send
from prometheus_client import Counter, Histogram
from structlog.contextvars import bind_contextvars, reset_contextvars

from gateway.client_address import TrustedProxies, client_address
from gateway.draining import Leaving
from gateway.errors import ApiError, Unavailable
from gateway.ids import uuid7
from gateway.problems import JSON, PROBLEM, PROBLEM_ROUTES

log = structlog.get_logger("gateway.access")

MAX_CLIENT_ID: Final = 128
_CLIENT_ID = re.compile(rf"[\x21-\x7e]{{1,{MAX_CLIENT_ID}}}")
_QUIET = {"/healthz", "/readyz", "/metrics"}

SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"strict-transport-security", b"max-age=31536000"),  # browsers heed it over HTTPS only
)
API_POLICY: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
NO_STORE: Final = (b"cache-control", b"no-store")
_OWN: Final = [*SECURITY_HEADERS, API_POLICY, NO_STORE]
_OWN_NAMES: Final = frozenset(name for name, _ in _OWN)

REQUESTS = Counter("motet_http_requests", "HTTP requests answered.", ["route", "method", "status"])
DURATION = Histogram(
    "motet_http_request_duration_seconds",
    "From the first byte of a request to the last byte of its answer.",
    ["route"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300),
)


def request_id_of(scope: Scope) -> UUID:
    """The id that this request was given at the door (UUIDv7)."""
    found = scope["state"]["request_id"]
    assert isinstance(found, UUID)
    return found


def began_of(scope: Scope) -> float | None:
    """When its head was here, on the monotonic clock."""
    began = scope["state"].get("began")
    return began if isinstance(began, float) else None


def client_request_id_of(scope: Scope) -> str | None:
    """What the client sent as `x-request-id`, if it is printable and at most 128 characters; never used
    as an id."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            return text if _CLIENT_ID.fullmatch(text) else None
    return None


class Envelope:
    """Wraps the whole application, so that answers made by the router itself (404, 405) pass through too."""

    def __init__(
        self, app: ASGIApp, leaving: Leaving | None = None, logged_through: TrustedProxies | None = None
    ) -> None:
        """`logged_through`: log each client's address as these proxies tell it; None: log no address."""
        self._app = app
        self._leaving = leaving or Leaving()
        self._logged_through = logged_through

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request_id = uuid7()
        state = scope.setdefault("state", {})
        state["request_id"], state["began"] = request_id, time.monotonic()
        exchange = _Exchange(scope, send, request_id, self._leaving)
        if self._logged_through is not None:
            exchange.client = str(client_address(scope, self._logged_through))
        bound = bind_contextvars(request_id=str(request_id))
        try:
            await self._app(scope, receive, exchange.send)
        except asyncio.CancelledError:  # the server's drain is over, and the request is not
            if exchange.started:
                raise
            await send_error(stopping(), scope, exchange.send)
        finally:
            exchange.record()
            reset_contextvars(**bound)


def stopping() -> Unavailable:
    """What a request hears that did not end before its gateway process did."""
    return Unavailable("The gateway is shutting down. Try again.", code="gateway_stopping")


def refusal(error: ApiError) -> ASGIApp:
    """An application that answers every request with `error`."""

    async def refuse(scope: Scope, _receive: Receive, send: Send) -> None:
        await send_error(error, scope, send)

    return refuse


async def send_error(error: ApiError, scope: Scope, send: Send) -> None:
    """The answer to a request that no route answers, in the terms of its prefix; its connection ends."""
    problem = scope["path"].startswith(PROBLEM_ROUTES)
    body, media_type = (error.problem_body(), PROBLEM) if problem else (error.openai_body(), JSON)
    headers = {
        "content-type": media_type,
        "content-length": str(len(body)),
        "connection": "close",
        **error.headers,
    }
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})


class _Exchange:
    """One request and its answer."""

    client: str | None = None

    def __init__(self, scope: Scope, send: Send, request_id: UUID, leaving: Leaving) -> None:
        self._leaving = leaving
        self._scope = scope
        self._send = send
        self._request_id = request_id
        self._status = 0
        self._started = time.perf_counter()

    @property
    def started(self) -> bool:
        return self._status != 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = self._headers(message)
            await self._send(message)  # may wait behind an earlier answer of its connection
            self._status = message["status"]
        else:
            await self._send(message)

    def record(self) -> None:
        seconds = time.perf_counter() - self._started
        # A label must not be what a client typed: unmatched paths are one series.
        route = str(self._scope.get("path_template") or "unmatched")
        method = str(self._scope.get("method", ""))
        requests, duration = _metrics_of(route, method if method in _METHODS else "other", self._status)
        requests.inc()
        duration.observe(seconds)
        if route not in _QUIET:
            more = {} if self.client is None else {"client": self.client}
            ms = round(seconds * 1000, 1)
            log.info("request", method=method, route=route, status=self._status, ms=ms, **more)

    def _headers(self, message: HTTPSendMessage) -> list[tuple[bytes, bytes]]:
        headers = list(message.get("headers", []))  # type: ignore[call-overload]  # a union of messages
        present = {name.lower() for name, _ in headers}
        headers.append((b"x-request-id", str(self._request_id).encode()))
        if self._leaving.begun and b"connection" not in present:
            headers.append((b"connection", b"close"))
        missing = (
            _OWN if present.isdisjoint(_OWN_NAMES) else [pair for pair in _OWN if pair[0] not in present]
        )
        return [*headers, *missing]


@lru_cache(maxsize=4_096)
def _metrics_of(route: str, method: str, status: int) -> tuple[Counter, Histogram]:
    """Kept: finding them among all costs more than adding to them."""
    return REQUESTS.labels(route, method, str(status)), DURATION.labels(route)


_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
