"""How long a client waits for the first byte, in its own words."""

from __future__ import annotations

import math
from typing import Final

from litestar.types import Scope

from gateway.errors import BadRequest

HEADER: Final = b"x-motet-deadline-ms"
"""Milliseconds from the request's arrival to the first byte of the answer, a whole number from 1."""
SDK_HEADER: Final = b"x-stainless-read-timeout"
"""Seconds for which an OpenAI SDK waits for bytes; it says so by itself. What it can't mean is not heeded."""
LONGEST_S: Final = 24 * 3600.0


def deadline_s(scope: Scope) -> float | None:
    """Seconds; None when the client named none. Raises 400 for a header of ours that is no number."""
    ours = sdks = None
    for name, value in scope["headers"]:
        if name == HEADER:
            ours = value.decode("latin-1")
        elif name == SDK_HEADER:
            sdks = value.decode("latin-1")
    if ours is not None:
        if not (ours.isascii() and ours.isdigit() and len(ours) <= 10 and int(ours) > 0):
            raise BadRequest(
                f"'{HEADER.decode()}' must be a whole number of milliseconds, at least 1.",
                param=HEADER.decode(),
                code="invalid_value",
            )
        return min(int(ours) / 1000, LONGEST_S)
    return _seconds(sdks) if sdks is not None else None


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:  # "None", when the SDK waits for ever
        return None
    return min(seconds, LONGEST_S) if math.isfinite(seconds) and seconds > 0 else None
