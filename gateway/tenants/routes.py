"""HTTP of tenants: operators only."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

from litestar import get, patch, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from gateway.audit.service import Actor
from gateway.models import TenantStatus
from gateway.paging import DEFAULT_LIMIT, EARLIER, NamePrefix, PageCursor, PageLimit, Since, Until, moment
from gateway.services import Services
from gateway.tenants.repository import BY_ID, TenantFilters
from gateway.tenants.schemas import TenantCreate, TenantOut, TenantPage, TenantPatch

After = Annotated[UUID | None, QueryParameter(description=EARLIER)]


def tenant_filters(
    status: FromQuery[TenantStatus | None] = None,
    name_prefix: NamePrefix = None,
    since: Since = None,
    until: Until = None,
) -> TenantFilters:
    return TenantFilters(status, name_prefix, moment(since), moment(until))


@post("/api/v1/tenants", summary="Create a tenant")
async def create_tenant(
    services: NamedDependency[Services], actor: NamedDependency[Actor], data: JSONBody[TenantCreate]
) -> TenantOut:
    return TenantOut.of(await services.tenants.create(actor, data))


@get(
    "/api/v1/tenants",
    summary="List tenants, oldest first",
    dependencies={"filters": Provide(tenant_filters, sync_to_thread=False)},
)
async def list_tenants(
    services: NamedDependency[Services],
    filters: NamedDependency[TenantFilters],
    cursor: PageCursor = None,
    after: After = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> TenantPage:
    given = asdict(filters)
    start = BY_ID.start(cursor, given) or (None if after is None else (after,))
    found = await services.tenants.page(filters, start, limit + 1)
    return BY_ID.cut(found, limit, lambda tenant: (tenant.id,), given).fill(TenantPage, TenantOut.of)


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
