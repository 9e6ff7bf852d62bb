"""Edits that know what they edit: an entity tag of what can be changed, and `If-Match` to hold it against.

The tag is of the fields that a change may name, not of what only happens (when a key was last used), so that
it moves when somebody else edited, and else not; what has a revision of its own in its row (an alias) has
that for a tag. Without `If-Match` a change is taken as before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
from litestar.params import HeaderParameter

from gateway.errors import BadRequest, PreconditionFailed

MAX_TAG: Final = 256
IfMatch = Annotated[
    str | None,
    HeaderParameter(
        name="if-match",
        max_length=MAX_TAG,
        description="The `etag` of what is edited; 412 with what stands there now, when it is another.",
    ),
]
IfNoneMatch = Annotated[
    str | None,
    HeaderParameter(
        name="if-none-match",
        max_length=MAX_TAG,
        description="`*`: there must be none yet; 412 with what stands there now, when there is one.",
    ),
]


def tag_of(fields: Mapping[str, Any]) -> str:
    """A strong entity tag (RFC 9110, 8.8.3) of these fields and their values."""
    encoded = msgspec.json.encode(dict(fields), order="deterministic")
    return f'"{hashlib.blake2b(encoded, digest_size=12).hexdigest()}"'


def revision_tag(revision: int) -> str:
    """Of what counts its changes itself."""
    return f'"{revision}"'


def require_match(given: str | None, fields: Mapping[str, Any], tag: str | None = None) -> None:
    """Raises `PreconditionFailed` unless `given` is absent, `*`, or names the tag of `fields` (`tag`, where
    they have one of their own). To be called where the row is locked, so that nothing comes between.

    A tag that a proxy made weak is taken as it was: nginx and others do so when they compress an answer, and
    what it is a tag of is not the answer's bytes."""
    if given is None or given.strip() == "*":
        return
    tag = tag_of(fields) if tag is None else tag
    if tag not in [part.strip().removeprefix("W/") for part in given.split(",")]:
        raise _changed("It was changed meanwhile. Look at what is there now, and try again.", fields, tag)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Both headers of a request that makes or changes a thing under a name of the caller's choice."""

    if_match: str | None = None
    if_none_match: str | None = None

    @classmethod
    def of(cls, if_match: str | None, if_none_match: str | None) -> Conditions:
        """Raises `BadRequest`."""
        if if_none_match is not None and (if_none_match.strip() != "*" or if_match is not None):
            raise BadRequest("'If-None-Match' may be '*' alone.", param="if-none-match", code="invalid_value")
        return cls(if_match, if_none_match)

    def require(self, fields: Mapping[str, Any] | None, tag: str | None = None) -> None:
        """`fields` None: there is no such thing. Raises `PreconditionFailed`, as `require_match` does."""
        if fields is None:
            if self.if_match is not None:
                raise PreconditionFailed("It was deleted meanwhile.")
            return
        if self.if_none_match is not None:
            raise _changed("There is one already.", fields, tag_of(fields) if tag is None else tag)
        require_match(self.if_match, fields, tag)


UNCONDITIONAL: Final = Conditions()


def _changed(message: str, fields: Mapping[str, Any], tag: str) -> PreconditionFailed:
    details = {"current": msgspec.to_builtins(dict(fields))}
    return PreconditionFailed(message, headers={"etag": tag}, details=details)
