"""HTTP of the price book: operators only."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from gateway.audit.service import Actor
from gateway.billing.price_book.prices import Selector
from gateway.billing.price_book.schemas import (
    ChoiceOut,
    PriceBookOut,
    PriceBookPage,
    ServiceClass,
    VersionIn,
    VersionWithPrices,
)
from gateway.errors import BadRequest
from gateway.paging import DEFAULT_LIMIT, EARLIER, Order, PageCursor, PageLimit, Since, Until, moment
from gateway.services import Services

MAX_VERSION = 2**31 - 1

BY_VERSION: Order[tuple[int]] = Order("price-books", int)

Before = Annotated[int | None, QueryParameter(ge=1, le=MAX_VERSION, description=EARLIER)]
Version = Annotated[
    int | None, QueryParameter(ge=1, le=MAX_VERSION, description="The one in force now when absent.")
]
Name = Annotated[str | None, QueryParameter(max_length=63, description="With `owner`; absent = the base.")]
Base = Annotated[str, QueryParameter(max_length=64, description="Id of the base.")]


@post("/api/v1/price-books", summary="Create a price book version")
async def create_price_book(
    services: NamedDependency[Services], actor: NamedDependency[Actor], data: JSONBody[VersionIn]
) -> VersionWithPrices:
    return VersionWithPrices.of(*await services.billing.price_book.create(actor, data))


@get("/api/v1/price-books", summary="Price book versions, newest first")
async def list_price_books(
    services: NamedDependency[Services],
    since: Since = None,
    until: Until = None,
    cursor: PageCursor = None,
    before: Before = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> PriceBookPage:
    """`since` and `until` are of their making, not of the moment from which they hold."""
    given = {"since": moment(since, "since"), "until": moment(until, "until")}
    start = BY_VERSION.start(cursor, given) or (before,)
    found = await services.billing.price_book.page(start[0], limit + 1, *given.values())
    cut = BY_VERSION.cut(found, limit, lambda each: (each.version,), given)
    last = cut.rows[-1].version if cut.has_more else None
    in_force = await services.billing.price_book.in_force()
    return cut.fill(PriceBookPage, PriceBookOut.of, next=last, in_force=in_force)


@get("/api/v1/price-books/{version:int}", summary="A price book version with its prices")
async def get_price_book(services: NamedDependency[Services], version: FromPath[int]) -> VersionWithPrices:
    return VersionWithPrices.of(*await services.billing.price_book.get(max(0, min(version, MAX_VERSION))))


@get("/api/v1/price-choice", summary="Which price holds for a piece of usage, and why")
async def choose_price(
    services: NamedDependency[Services],
    base_id: Base,
    service_class: FromQuery[ServiceClass] = "standard",
    owner: FromQuery[UUID | None] = None,
    adapter: Name = None,
    version: Version = None,
) -> ChoiceOut:
    if (owner is None) != (adapter is None):
        raise BadRequest("'owner' and 'adapter' go together.", param="owner", code="invalid_value")
    used = Selector(base_id, owner, adapter, service_class)
    edition, choice = await services.billing.price_book.choose(version, used)
    return ChoiceOut.of(edition.version, edition.currency, choice)


handlers = [create_price_book, list_price_books, get_price_book, choose_price]
