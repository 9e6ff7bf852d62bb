"""`limit` and `after` of a list: how much of it, and from where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from litestar.datastructures import MultiDict

from gateway.catalog.names import is_name
from gateway.errors import BadRequest

DEFAULT_LIMIT = 20
MAX_LIMIT = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageQuery:
    limit: int
    after: str | None  # `next` of the page before


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: list[T]
    has_more: bool


def page_query(query: MultiDict[str]) -> PageQuery:
    """Raises `BadRequest` for anything but one `limit` and one `after`."""
    for name in query:
        if name not in ("limit", "after"):
            raise BadRequest(
                f"Unknown query parameter: '{name[:64]}'.", param=name[:64], code="unknown_parameter"
            )
        if len(query.getall(name)) > 1:
            raise BadRequest(f"'{name}' is given twice.", param=name, code="duplicate_parameter")
    limit = _number("limit", query.get("limit", str(DEFAULT_LIMIT)), MAX_LIMIT)
    return PageQuery(limit, query.get("after"))


def name_cursor(query: PageQuery) -> str:
    """`after` of a list of adapters, which is a name; "" for the first page."""
    if query.after is not None and not is_name(query.after):
        raise BadRequest("'after' is no cursor of this list.", param="after", code="invalid_value")
    return query.after or ""


def version_cursor(query: PageQuery) -> int | None:
    """`after` of a list of versions, which is a version number."""
    return None if query.after is None else _number("after", query.after, 2**31 - 1)


def cut(items: list[T], query: PageQuery) -> Page[T]:
    """A page out of up to `limit` + 1 items that were looked up."""
    return Page(items[: query.limit], has_more=len(items) > query.limit)


def _number(name: str, text: str, most: int) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 10 and 1 <= int(text) <= most:
        return int(text)
    raise BadRequest(f"'{name}' must be a whole number from 1 to {most}.", param=name, code="invalid_value")
