"""HTTP of placements: a tenant's own, its quota, and what operators see of all."""

from __future__ import annotations

from uuid import UUID

from litestar import delete, get, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.access import SCOPE
from gateway.audit.service import Actor
from gateway.catalog.routes import ADAPTER, READ, WRITE
from gateway.paging import DEFAULT_LIMIT, PageCursor, PageLimit, Since, moment
from gateway.placement.repository import BY_ARTEFACT
from gateway.placement.schemas import (
    MoveList,
    MoveOut,
    PlacedPage,
    PlacementBody,
    PlacementDeleted,
    PlacementOut,
    QuotaBody,
    QuotaOut,
)
from gateway.principal import Principal, Scope, TenantId
from gateway.services import Services

PLACEMENT = [f"{path}/placement" for path in ADAPTER]
QUOTA = "/api/v1/tenants/{tenant:uuid}/placement-quota"

Found = NamedDependency[Services]
Acting = NamedDependency[Actor]
Asking = NamedDependency[Principal]


@get(PLACEMENT, opt=READ, summary="Where an adapter is wanted, and where it is")
async def get_placement(services: Found, principal: Asking, name: FromPath[str]) -> PlacementOut:
    return await services.placements.get(principal, name)


@put(PLACEMENT, opt=WRITE, summary="Have an adapter lie ready, whoever asks for it")
async def put_placement(
    services: Found, principal: Asking, actor: Acting, name: FromPath[str], data: JSONBody[PlacementBody]
) -> PlacementOut:
    return await services.placements.put(principal, actor, name, data)


@delete(PLACEMENT, opt=WRITE, status_code=200, summary="Leave it to traffic again")
async def delete_placement(
    services: Found, principal: Asking, actor: Acting, name: FromPath[str]
) -> PlacementDeleted:
    await services.placements.delete(principal, actor, name)
    return PlacementDeleted(id=name)


@get(["/v1/placement-quota", QUOTA], opt={SCOPE: Scope.ADAPTERS_READ}, summary="How much may be placed")
async def get_quota(services: Found, principal: Asking) -> QuotaOut:
    return await services.placements.quota(principal.tenant)


@put(QUOTA, summary="Set how much a tenant may place")
async def put_quota(
    services: Found, actor: Acting, tenant: FromPath[UUID], data: JSONBody[QuotaBody]
) -> QuotaOut:
    return await services.placements.set_quota(actor, TenantId(tenant), data)


@get("/api/v1/placement", summary="Adapters by replica and tier: wanted beside actual, by artefact")
async def list_placed(
    services: Found, cursor: PageCursor = None, limit: PageLimit = DEFAULT_LIMIT
) -> PlacedPage:
    (start,) = BY_ARTEFACT.start(cursor) or ("",)
    found = await services.placements.page(start, limit + 1)
    return BY_ARTEFACT.cut(found, limit, lambda each: (each.artefact,)).fill(PlacedPage, lambda each: each)


@get("/api/v1/placement/moves", summary="Loads and evictions as they happened lately, newest first")
async def list_moves(services: Found, since: Since = None, limit: PageLimit = DEFAULT_LIMIT) -> MoveList:
    """As the worker that answers heard of them: every worker hears of all."""
    found = services.placements.moves(limit, moment(since, "since"))
    return MoveList(data=[MoveOut.of(move) for move in found])


handlers = [
    get_placement,
    put_placement,
    delete_placement,
    get_quota,
    put_quota,
    list_placed,
    list_moves,
]
