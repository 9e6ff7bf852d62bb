"""The small part of ASGI that the hot path speaks itself: read a body, answer, notice that a client left."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from litestar.types import ASGIApp, Receive, Scope, Send

from engine.server.errors import EngineError

T = TypeVar("T")
Headers = Iterable[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
PROBLEM = (b"content-type", b"application/problem+json")
EVENT_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class ClientLeft(Exception):
    """The connection closed before the answer was complete."""


class BearerDoor:
    """Stands before every route; closed unless the route is named as public. HTTP only: the server runs
    without WebSockets and lifespan messages."""

    def __init__(self, app: ASGIApp, tokens: tuple[bytes, ...], public: frozenset[str]) -> None:
        self._app = app
        self._tokens = tokens
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in self._public and not self._knows(scope["headers"]):
            error = EngineError(
                401, "A valid engine token is required.", kind="invalid_request_error", code="invalid_api_key"
            )
            internal = scope["path"].startswith("/internal/")
            body = error.problem_body if internal else error.openai_body
            media_type = PROBLEM if internal else JSON
            await respond(send, 401, body, [(b"www-authenticate", b"Bearer")], media_type)
            return
        await self._app(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        given = next((value for name, value in headers if name == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")
        # every token is compared, so that time doesn't tell which one was near
        matches = [hmac.compare_digest(token.strip(), known) for known in self._tokens]
        return scheme.lower() == b"bearer" and any(matches)


async def read_body(receive: Receive, max_bytes: int, timeout_s: float) -> bytes:
    """The whole body. Raises 413 past `max_bytes`, 408 past `timeout_s`, `ClientLeft`."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeft
                assert message["type"] == "http.request"
                parts.append(message["body"])
                size += len(message["body"])
                if size > max_bytes:
                    raise EngineError(
                        413,
                        f"The body is larger than {max_bytes} bytes.",
                        kind="invalid_request_error",
                        code="request_too_large",
                    )
                if not message["more_body"]:
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        raise EngineError(
            408, "The body did not arrive in time.", kind="invalid_request_error", code="timeout"
        ) from None


async def on_disconnect(receive: Receive, then: Callable[[], None]) -> None:
    """Calls `then` when the client leaves; run as a task once the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass
    then()


async def while_present(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives; it is cancelled, and `ClientLeft` raised, when the client leaves before. To be
    called once the body was read."""
    task = asyncio.create_task(work)
    left = asyncio.create_task(on_disconnect(receive, lambda: None))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        for each in (task, left):
            each.cancel()
        await asyncio.gather(task, left, return_exceptions=True)


async def start(send: Send, status: int, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})


async def write(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def respond(
    send: Send, status: int, body: bytes, headers: Headers = (), media_type: tuple[bytes, bytes] = JSON
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await start(send, status, [media_type, length, *headers])
    await write(send, body, more=False)
