"""The request that handlers see whose body Litestar reads: it has to arrive in time."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from litestar import Request
from litestar.datastructures import State

from gateway.errors import BadRequest, RequestTimeout

BODY_S: Final = 30.0
"""For a whole body of at most `MAX_JSON_BYTES`; inference and uploads read and time their own."""


class TimedRequest(Request[Any, Any, State]):
    """Without it a stranger could hold a connection and a task for ever, a byte now and then."""

    async def body(self) -> bytes:
        """Raises `RequestTimeout`."""
        try:
            async with asyncio.timeout(BODY_S):
                return await super().body()
        except TimeoutError:
            raise RequestTimeout(f"The body did not arrive within {BODY_S:g} s.") from None

    async def json(self) -> Any:
        """Raises `BadRequest` for arrays in arrays without end: a route that takes any JSON follows them."""
        try:
            return await super().json()
        except RecursionError:
            raise BadRequest("The body is nested too deeply.", code="invalid_value") from None
