"""HTTP of re-rating: operators only."""

from __future__ import annotations

from litestar import post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.audit.service import Actor
from gateway.billing.charging.schemas import PreviewIn, ReRatingIn, ReRatingOut
from gateway.services import Services

MAX_VERSION = 2**31 - 1


@post(
    "/api/v1/price-books/{version:int}/re-ratings",
    status_code=200,
    summary="Re-rate usage under a price book version, or say what that would change",
)
async def rerate(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    version: FromPath[int],
    data: JSONBody[ReRatingIn],
) -> ReRatingOut:
    """A dry run unless `dry_run` is false."""
    return await services.billing.reratings.rerate(actor, max(0, min(version, MAX_VERSION)), data)


@post(
    "/api/v1/price-books/preview",
    status_code=200,
    summary="What usage would have cost under a version that is not made yet",
)
async def preview_price_book(
    services: NamedDependency[Services], actor: NamedDependency[Actor], data: JSONBody[PreviewIn]
) -> ReRatingOut:
    """Checks it as its making would, and changes nothing."""
    return await services.billing.reratings.preview(actor, data)


handlers = [rerate, preview_price_book]
