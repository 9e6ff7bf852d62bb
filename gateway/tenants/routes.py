"""HTTP of tenants: operators only."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from litestar import get, patch, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from gateway.audit.service import Actor
from gateway.principal import Admin
from gateway.services import Services
from gateway.tenants.schemas import TenantCreate, TenantOut, TenantPage, TenantPatch

PageSize = Annotated[int, QueryParameter(ge=1, le=200, description="Tenants in one answer.")]


@post("/api/v1/tenants", summary="Create a tenant")
async def create_tenant(
    services: NamedDependency[Services], actor: NamedDependency[Actor], data: JSONBody[TenantCreate]
) -> TenantOut:
    return TenantOut.of(await services.tenants.create(actor, data))


@get("/api/v1/tenants", summary="List tenants, oldest first; to members, their own")
async def list_tenants(
    services: NamedDependency[Services],
    admin: NamedDependency[Admin],
    after: FromQuery[UUID | None] = None,
    limit: PageSize = 50,
) -> TenantPage:
    only = await services.members.tenants_of(admin)
    tenants = await services.tenants.page(after, limit + 1, only)
    return TenantPage([TenantOut.of(tenant) for tenant in tenants[:limit]], has_more=len(tenants) > limit)


@get("/api/v1/tenants/{tenant:uuid}", summary="One tenant")
async def get_tenant(services: NamedDependency[Services], tenant: FromPath[UUID]) -> TenantOut:
    return TenantOut.of(await services.tenants.get(tenant))


@patch("/api/v1/tenants/{tenant:uuid}", summary="Change a tenant's limits or status")
async def change_tenant(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    data: JSONBody[TenantPatch],
) -> TenantOut:
    return TenantOut.of(await services.tenants.change(actor, tenant, data))


handlers = [create_tenant, list_tenants, get_tenant, change_tenant]
