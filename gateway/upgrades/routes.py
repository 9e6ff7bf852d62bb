"""`/api/v1/bases`: for operators."""

from __future__ import annotations

from typing import Annotated

from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from gateway.audit.service import Actor
from gateway.paging import DEFAULT_LIMIT, Order, PageCursor, PageLimit
from gateway.services import Services
from gateway.upgrades.repository import BY_VERSION
from gateway.upgrades.schemas import (
    BaseList,
    LeftBehindList,
    UpgradeEnd,
    UpgradeIn,
    UpgradeOut,
)

Found = NamedDependency[Services]
Acting = NamedDependency[Actor]
OfWeights = Annotated[
    str | None, QueryParameter(pattern="^[0-9a-f]{64}$", description="Those that failed on these weights.")
]

BY_NAME: Order[tuple[str]] = Order("bases", str)


@get("/api/v1/bases", summary="Bases, their weights, and how far upgrades are")
async def list_bases(
    services: Found, cursor: PageCursor = None, limit: PageLimit = DEFAULT_LIMIT
) -> BaseList:
    (start,) = BY_NAME.start(cursor) or ("",)
    rows = [base for base in await services.upgrades.bases() if base.name > start]
    return BY_NAME.cut(rows[: limit + 1], limit, lambda base: (base.name,)).fill(BaseList, lambda base: base)


@post("/api/v1/bases/{base_id:str}/upgrades", summary="Let other weights of a base in, beside those it has")
async def begin_upgrade(
    services: Found, actor: Acting, base_id: FromPath[str], data: JSONBody[UpgradeIn]
) -> UpgradeOut:
    """Adapters are proved on them in the background, and go there once they passed."""
    return await services.upgrades.begin(actor, base_id, data.base_digest)


@post("/api/v1/bases/{base_id:str}/upgrades/{digest:str}/end", status_code=200, summary="End an upgrade")
async def end_upgrade(
    services: Found,
    actor: Acting,
    base_id: FromPath[str],
    digest: FromPath[str],
    data: JSONBody[UpgradeEnd],
) -> UpgradeOut:
    """`keep` says which weights go on alone."""
    return await services.upgrades.end(actor, base_id, digest, data)


@get("/api/v1/bases/{base_id:str}/left-behind", summary="Ready versions that can't follow to this base")
async def list_left_behind(
    services: Found,
    base_id: FromPath[str],
    base_digest: OfWeights = None,
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> LeftBehindList:
    """Without `base_digest`, those of other bases."""
    given = {"base_id": base_id, "base_digest": base_digest}
    start = BY_VERSION.start(cursor, given)
    after = start[0] if start is not None else None
    rows = await services.upgrades.left_behind(base_id, base_digest, after, limit + 1)
    cut = BY_VERSION.cut(rows, limit, lambda row: (row[0],), given)
    return cut.fill(LeftBehindList, lambda row: row[1])


handlers = [list_bases, begin_upgrade, end_upgrade, list_left_behind]
