"""How a client names a request, and the name under which it is remembered."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from gateway.answers.sealing import tagged
from gateway.errors import BadRequest
from gateway.principal import Principal

HEADER = b"idempotency-key"
MAX_CHARACTERS = 255
_KEY = re.compile(rb"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")


def key_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The header's text; None when there is none. Raises `BadRequest`."""
    given = [value for name, value in headers if name == HEADER]
    if not given:
        return None
    if len(given) > 1 or _KEY.fullmatch(given[0]) is None:
        raise BadRequest(
            f"'Idempotency-Key' must be given once, as 1 to {MAX_CHARACTERS} printable ASCII characters.",
            param="Idempotency-Key",
            code="invalid_idempotency_key",
        )
    return given[0].decode("ascii")


def record_name(principal: Principal, key: str) -> str:
    """API keys of one tenant don't meet each other's: two programs may number their requests alike."""
    return hashlib.sha256(tagged("idempotency 1", principal.key_id, key)).hexdigest()
