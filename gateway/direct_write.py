"""A shorter way for the frames of a stream to the client's connection: what ASGI's `send` does with one more
piece of a chunked body, without a coroutine, a message and the layers around it (docs/decisions/0077). It
hangs on the scope as an extension, and whoever finds none, or is told no, takes `send`.

The bytes are the same either way (tests/gateway/test_direct_write.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from litestar.types import Scope
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

EXTENSION: Final = "motet.direct_write"

DirectWrite = Callable[[bytes], bool]
"""Writes a piece of an answer that has begun, and more of which follows. False, and nothing is written: it
has not begun, is over or not chunked, its client is gone, or reads too slowly to be sent more."""


def offer_direct_write(cycle: RequestResponseCycle) -> None:
    """Before the application is called with the cycle's scope."""
    extensions = cast(dict[str, Any], cycle.scope.setdefault("extensions", {}))
    extensions[EXTENSION] = weakref.ref(cycle)  # which holds the scope


def direct_write(scope: Scope) -> DirectWrite | None:
    """None where another server runs the application."""
    extensions = cast(dict[str, Any], scope.get("extensions") or {})
    kept = cast(Callable[[], RequestResponseCycle | None] | None, extensions.get(EXTENSION))
    cycle = None if kept is None else kept()
    return None if cycle is None else partial(_write, cycle)


def _write(cycle: RequestResponseCycle, data: bytes) -> bool:
    if (
        not data
        or not cycle.chunked_encoding  # which it is not before it begins
        or cycle.response_complete
        or cycle.flow.write_paused
        or cycle.transport.is_closing()
    ):
        return False
    cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
    return True
