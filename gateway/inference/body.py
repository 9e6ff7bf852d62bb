"""Reads a request's body under its cap."""

from __future__ import annotations

import asyncio

from litestar.types import Receive, Scope

from gateway.errors import BodyTooLarge, RequestTimeout
from gateway.inference.client import ClientGone
from gateway.refusal import Refusal


async def read_body(scope: Scope, receive: Receive, *, most_bytes: int, timeout_s: float) -> bytes:
    """The whole body. Raises 413 past `most_bytes` (unread, when its length is declared), 408 when it does
    not come in time, `ClientGone`."""
    _check_declared(scope, most_bytes)
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(timeout_s):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientGone
                part, more = message.get("body", b""), message.get("more_body", False)
                parts.append(part)
                size += len(part)
                if size > most_bytes:
                    raise _too_large(most_bytes)
    except TimeoutError:
        raise RequestTimeout(f"The body did not arrive within {timeout_s:.0f} s.") from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_declared(scope: Scope, most_bytes: int) -> None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > most_bytes:
            raise _too_large(most_bytes, int(value))


def _too_large(most_bytes: int, declared: int | None = None) -> BodyTooLarge:
    error = BodyTooLarge(f"The body is larger than {most_bytes} bytes.")
    error.refusal = Refusal("body.bytes", most_bytes, declared, most_bytes)
    return error
