"""HTTP of placements: a tenant's own, its quota, and what operators see of all."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal
from uuid import UUID

from litestar import Request, Response, delete, get, put
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from gateway.access import SCOPE, role_of
from gateway.audit.service import Actor
from gateway.catalog.routes import ADAPTER, READ, WRITE
from gateway.edits import IfMatch, tag_of
from gateway.paging import DEFAULT_LIMIT, NamePrefix, PageCursor, PageLimit, Since, moment
from gateway.placement.repository import BY_ADAPTER, PlacedFilters
from gateway.placement.schemas import (
    MoveList,
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
AnyRequest = Request[Any, Any, State]
OnReplica = Annotated[
    str | None, QueryParameter(max_length=400, description="URL of one that has it in memory.")
]
InTier = Annotated[Literal["device", "host"] | None, QueryParameter(description="Where some replica has it.")]
Wanted = Annotated[bool | None, QueryParameter(description="Those with a placement, or those without.")]


@get(PLACEMENT, opt=READ, summary="Where an adapter is wanted, and where it is")
async def get_placement(
    request: AnyRequest, services: Found, principal: Asking, name: FromPath[str]
) -> Response[PlacementOut]:
    return _tagged(await services.placements.get(principal, name, role_of(request.scope)))


@put(PLACEMENT, opt=WRITE, summary="Have an adapter lie ready, whoever asks for it")
async def put_placement(
    request: AnyRequest,
    services: Found,
    principal: Asking,
    actor: Acting,
    name: FromPath[str],
    data: JSONBody[PlacementBody],
    if_match: IfMatch = None,
) -> Response[PlacementOut]:
    role = role_of(request.scope)
    return _tagged(await services.placements.put(principal, actor, name, data, role=role, if_match=if_match))


@delete(PLACEMENT, opt=WRITE, status_code=200, summary="Leave it to traffic again")
async def delete_placement(
    services: Found, principal: Asking, actor: Acting, name: FromPath[str], if_match: IfMatch = None
) -> PlacementDeleted:
    await services.placements.delete(principal, actor, name, if_match)
    return PlacementDeleted(id=name)


@get(["/v1/placement-quota", QUOTA], opt={SCOPE: Scope.ADAPTERS_READ}, summary="How much may be placed")
async def get_quota(services: Found, principal: Asking) -> QuotaOut:
    return await services.placements.quota(principal.tenant)


@put(QUOTA, summary="Set how much a tenant may place")
async def put_quota(
    services: Found, actor: Acting, tenant: FromPath[UUID], data: JSONBody[QuotaBody]
) -> QuotaOut:
    return await services.placements.set_quota(actor, TenantId(tenant), data)


@get("/api/v1/placement", summary="Adapters by replica and tier: wanted beside actual, by adapter")
async def list_placed(
    services: Found,
    tenant: Annotated[UUID | None, QueryParameter(description="Its own.")] = None,
    name_prefix: NamePrefix = None,
    replica: OnReplica = None,
    tier: InTier = None,
    wanted: Wanted = None,
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> PlacedPage:
    filters = PlacedFilters(tenant, name_prefix, replica, tier, wanted)
    given = asdict(filters)
    found = await services.placements.page(filters, BY_ADAPTER.start(cursor, given) or ("", ""), limit + 1)
    cut = BY_ADAPTER.cut(found, limit, lambda each: each[0], given)
    return cut.fill(PlacedPage, lambda each: each[1])


@get("/api/v1/placement/moves", summary="Loads and evictions as they happened lately, newest first")
async def list_moves(services: Found, since: Since = None, limit: PageLimit = DEFAULT_LIMIT) -> MoveList:
    """As the worker that answers heard of them: every worker hears of all."""
    return MoveList(data=await services.placements.moves(limit, moment(since, "since")))


def _tagged(placement: PlacementOut) -> Response[PlacementOut]:
    return Response(placement, headers={"etag": tag_of(placement.fields)})


handlers = [
    get_placement,
    put_placement,
    delete_placement,
    get_quota,
    put_quota,
    list_placed,
    list_moves,
]
