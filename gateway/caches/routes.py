"""HTTP of a tenant's caches: operators only."""

from __future__ import annotations

from uuid import UUID

from litestar import Response, delete, get, patch
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.audit.service import Actor
from gateway.caches.schemas import CachesDropped, CachesOut, CachesPatch
from gateway.edits import IfMatch, tag_of
from gateway.models import Tenant
from gateway.services import Services


@get("/api/v1/tenants/{tenant:uuid}/caches", summary="A tenant's caches")
async def get_caches(services: NamedDependency[Services], tenant: FromPath[UUID]) -> Response[CachesOut]:
    return _tagged(await services.caches.get(tenant))


@patch("/api/v1/tenants/{tenant:uuid}/caches", summary="Turn a tenant's response cache on or off")
async def change_caches(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    data: JSONBody[CachesPatch],
    if_match: IfMatch = None,
) -> Response[CachesOut]:
    return _tagged(await services.caches.change(actor, tenant, data, if_match))


@delete(
    "/api/v1/tenants/{tenant:uuid}/caches",
    status_code=200,
    summary="Drop a tenant's response cache and prefix cache",
)
async def drop_caches(
    services: NamedDependency[Services], actor: NamedDependency[Actor], tenant: FromPath[UUID]
) -> CachesDropped:
    return await services.caches.drop(actor, tenant)


def _tagged(tenant: Tenant) -> Response[CachesOut]:
    return Response(CachesOut.of(tenant), headers={"etag": tag_of(CachesPatch.fields_of(tenant))})


handlers = [get_caches, change_caches, drop_caches]
