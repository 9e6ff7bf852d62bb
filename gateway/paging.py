"""Lists in pages by keyset: one shape, one cursor, one bound for all of them.

A cursor is the place of the last entry that was shown, so that entries that are added or removed meanwhile
move nothing. It is opaque to clients and not signed: it holds what the page showed, and every query that it
bounds starts from the tenant all the same. It is checked instead, whole: the list, the filters, the types.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import GenericAlias
from typing import Annotated, Any, Final, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
from litestar.params import QueryParameter
from sqlalchemy import ColumnElement, literal, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from gateway.errors import BadRequest
from gateway.moments import storable

MAX_LIMIT: Final = 200
DEFAULT_LIMIT: Final = 50
MAX_CURSOR: Final = 512
MAX_PREFIX: Final = 100

PageLimit = Annotated[int, QueryParameter(ge=1, le=MAX_LIMIT, description="Entries in one answer.")]
PageCursor = Annotated[
    str | None, QueryParameter(max_length=MAX_CURSOR, description="`next_cursor` of the page before.")
]
EARLIER: Final = "As before there were cursors: prefer `cursor`."
Since = Annotated[datetime | None, QueryParameter(description="Made at or after it; RFC 3339.")]
Until = Annotated[datetime | None, QueryParameter(description="Made before it; RFC 3339.")]
NamePrefix = Annotated[
    str | None, QueryParameter(min_length=1, max_length=MAX_PREFIX, description="What its name begins with.")
]

Entry = TypeVar("Entry")
Filled = TypeVar("Filled")
Row = TypeVar("Row")
Place = TypeVar("Place", bound=tuple[Any, ...])

Filters = Mapping[str, Any]

_NONE: Filters = {}


class Page(msgspec.Struct, Generic[Entry], frozen=True, kw_only=True):
    """`next_cursor` is the `cursor` of the page after this one; null on the last. A list with more fields is
    a subclass, which names the type of `data` once more (Litestar does not look it up in its base)."""

    object: Literal["list"] = "list"
    data: list[Entry]
    has_more: bool
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Cut(Generic[Row]):
    """The rows of one page, and how to come to the next."""

    rows: Sequence[Row]
    has_more: bool
    next_cursor: str | None

    def page(self, show: Callable[[Row], Entry]) -> Page[Entry]:
        return self.fill(Page[Entry], show)

    def fill(self, kind: Callable[..., Filled], show: Callable[[Row], object], **more: object) -> Filled:
        """A page of a subclass, with what it has `more`."""
        data = [show(row) for row in self.rows]
        return kind(data=data, has_more=self.has_more, next_cursor=self.next_cursor, **more)


class Order(Generic[Place]):
    """The order of one list: `kinds` are the types of the columns it is sorted by, the last of which makes it
    unique, as in `NEWEST_FIRST: Order[ByCreation] = Order("keys", datetime, UUID)`."""

    def __init__(self, name: str, *kinds: type[Any]) -> None:
        self._name = name
        self._kind: Any = GenericAlias(tuple, kinds)

    def start(self, cursor: str | None, filters: Filters = _NONE) -> Place | None:
        """The place after which the page begins; None = at the top. Raises `BadRequest` (`invalid_cursor`)
        for what this list, under these filters, has not given out."""
        if cursor is None:
            return None
        try:
            name, digest, *place = msgspec.json.decode(_decoded(cursor), type=list[Any])
            if (name, digest) != (self._name, _digest(filters)):
                raise _refusal("It belongs to another list, or to other filters.")
            return self._converted(place)
        except (ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise _refusal("It is none that a page gave out.") from error

    def cut(
        self,
        found: Sequence[Row],
        limit: int,
        place: Callable[[Row], Place],
        filters: Filters = _NONE,
    ) -> Cut[Row]:
        """Out of up to `limit` + 1 rows that were looked up, so that it is known whether there are more."""
        shown, more = found[:limit], len(found) > limit
        return Cut(shown, more, self.cursor(place(shown[-1]), filters) if more else None)

    def cursor(self, place: Place, filters: Filters = _NONE) -> str:
        """The cursor of the page that begins after `place`."""
        made = msgspec.json.encode([self._name, _digest(filters), *place])
        return base64.urlsafe_b64encode(made).rstrip(b"=").decode()

    def _converted(self, place: list[Any]) -> Place:
        made: Place = msgspec.convert(tuple(place), self._kind)
        for value in made:
            if isinstance(value, datetime):
                value.astimezone(UTC)  # raises at the edges of time, which the database can't compare either
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise OverflowError
        return made


def beyond(
    columns: Sequence[InstrumentedAttribute[Any]], place: tuple[Any, ...], *, descending: bool
) -> ColumnElement[bool]:
    """The rows that come after `place` in the order of `columns`, which all run the same way, so that an
    index over them answers it."""
    assert len(columns) == len(place)
    row = tuple_(*columns)
    bound = tuple_(*(literal(value, column.type) for value, column in zip(place, columns, strict=True)))
    return row < bound if descending else row > bound


def moment(given: datetime | None, param: str) -> datetime | None:
    """A filter's moment; one without an offset is UTC. Raises `BadRequest` for one that nothing can have."""
    if given is not None and given.tzinfo is None:
        given = given.replace(tzinfo=UTC)
    return storable(given, param)


def starts_with(column: InstrumentedAttribute[str], prefix: str) -> ColumnElement[bool]:
    """Whether the text begins with `prefix`, taken literally."""
    return column.startswith(prefix, autoescape=True)


def _decoded(cursor: str) -> bytes:
    """Raises ValueError. One spelling only, so that a cursor can't be varied without changing what it
    says."""
    if len(cursor) > MAX_CURSOR or not cursor.isascii():
        raise ValueError("too long, or not ASCII")
    made = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    if base64.urlsafe_b64encode(made).rstrip(b"=").decode() != cursor:
        raise ValueError("not canonical")
    return made


def _digest(filters: Filters) -> str:
    """Of the filters that are set. Eight bytes: it guards against mistakes, not against forgery."""
    given = sorted((name, _plain(value)) for name, value in filters.items() if value is not None)
    return hashlib.blake2b(msgspec.json.encode(given), digest_size=8).hexdigest()


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _refusal(why: str) -> BadRequest:
    return BadRequest(f"The cursor is not valid. {why}", param="cursor", code="invalid_cursor")


ById = tuple[UUID]
ByCreation = tuple[datetime, UUID]
