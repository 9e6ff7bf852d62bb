"""HTTP of a tenant's caches: operators only."""

from __future__ import annotations

from uuid import UUID

from litestar import delete, get, patch
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from gateway.audit.service import Actor
from gateway.caches.schemas import CachesDropped, CachesOut, CachesPatch
from gateway.services import Services


@get("/api/v1/tenants/{tenant:uuid}/caches", summary="A tenant's caches")
async def get_caches(services: NamedDependency[Services], tenant: FromPath[UUID]) -> CachesOut:
    return CachesOut.of(await services.caches.get(tenant))


@patch("/api/v1/tenants/{tenant:uuid}/caches", summary="Turn a tenant's response cache on or off")
async def change_caches(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    data: JSONBody[CachesPatch],
) -> CachesOut:
    return CachesOut.of(await services.caches.change(actor, tenant, data))


@delete(
    "/api/v1/tenants/{tenant:uuid}/caches",
    status_code=200,
    summary="Drop a tenant's response cache and prefix cache",
)
async def drop_caches(
    services: NamedDependency[Services], actor: NamedDependency[Actor], tenant: FromPath[UUID]
) -> CachesDropped:
    return await services.caches.drop(actor, tenant)


handlers = [get_caches, change_caches, drop_caches]
