"""Bodies that are read as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from litestar import Request
from litestar.types import Receive

from gateway.errors import BadRequest, BodyTooLarge, RequestTimeout


class ClientLeft(BadRequest):
    """The connection closed before the body was complete; nobody hears this."""

    code = "client_disconnected"


async def body_chunks(receive: Receive) -> AsyncIterator[bytes]:
    """The body as it arrives; raises `ClientLeft`."""
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientLeft("The connection was closed before the upload was complete.")
        if message["body"]:
            yield message["body"]
        more = message["more_body"]


def announced_length(request: Request[Any, Any, Any]) -> int | None:
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None


async def small_body(request: Request[Any, Any, Any], most: int, timeout_s: float) -> bytes:
    """All of it. Raises `BodyTooLarge`, `RequestTimeout`, `ClientLeft`."""
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in body_chunks(request.receive):
                body += chunk
                if len(body) > most:
                    raise BodyTooLarge(f"The body is larger than {most:,} bytes.")
    except TimeoutError:
        raise RequestTimeout(f"The body did not arrive within {timeout_s:g} s.") from None
    return bytes(body)
