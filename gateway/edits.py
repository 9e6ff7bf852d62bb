"""Edits that know what they edit: an entity tag of what can be changed, and `If-Match` to hold it against.

The tag is of the fields that a change may name, not of what only happens (when a key was last used), so that
it moves when somebody else edited, and else not. Without `If-Match` a change is taken as before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from litestar.params import HeaderParameter

from gateway.errors import PreconditionFailed

MAX_TAG: Final = 256
IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="if-match",
        max_length=MAX_TAG,
        description="The `etag` of what is edited; 412 with what stands there now, when it is another.",
    ),
]


def tag_of(fields: Mapping[str, Any]) -> str:
    """A strong entity tag (RFC 9110, 8.8.3) of these fields and their values."""
    encoded = msgspec.json.encode(dict(fields), order="deterministic")
    return f'"{hashlib.blake2b(encoded, digest_size=12).hexdigest()}"'


def require_match(given: str | None, fields: Mapping[str, Any]) -> None:
    """Raises `PreconditionFailed` unless `given` is absent, `*`, or names the tag of `fields`. To be called
    where the row is locked, so that nothing comes between."""
    if given is None or given.strip() == "*":
        return
    if tag_of(fields) not in [part.strip() for part in given.split(",")]:
        raise PreconditionFailed(
            "It was changed meanwhile. Look at what is there now, and try again.",
            headers={"etag": tag_of(fields)},
            details={"current": msgspec.to_builtins(dict(fields))},
        )
