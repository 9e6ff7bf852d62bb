"""HTTP of tenants: operators only."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any
from uuid import UUID

from litestar import Request, Response, delete, get, patch, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from gateway.access import WHILE_LEAVING, role_of
from gateway.audit.service import Actor
from gateway.edits import IfMatch, tag_of
from gateway.models import Lifecycle, Tenant, TenantStatus
from gateway.paging import DEFAULT_LIMIT, EARLIER, NamePrefix, PageCursor, PageLimit, Since, Until, moment
from gateway.principal import Admin, Role
from gateway.services import Services
from gateway.tenants.repository import BY_ID, TenantFilters
from gateway.tenants.schemas import (
    OffboardingIn,
    OffboardingOut,
    Suspension,
    TenantCreate,
    TenantOut,
    TenantPage,
    TenantPatch,
)

OFFBOARDING = "/api/v1/tenants/{tenant:uuid}/offboarding"

AnyRequest = Request[Any, Any, Any]
After = Annotated[UUID | None, QueryParameter(description=EARLIER)]


def tenant_filters(
    status: FromQuery[TenantStatus | None] = None,
    lifecycle: FromQuery[Lifecycle | None] = None,
    name_prefix: NamePrefix = None,
    since: Since = None,
    until: Until = None,
) -> TenantFilters:
    return TenantFilters(status, lifecycle, name_prefix, moment(since, "since"), moment(until, "until"))


@post("/api/v1/tenants", summary="Create a tenant")
async def create_tenant(
    services: NamedDependency[Services], actor: NamedDependency[Actor], data: JSONBody[TenantCreate]
) -> TenantOut:
    return TenantOut.of(await services.tenants.create(actor, data), Role.OPERATOR)


@get(
    "/api/v1/tenants",
    summary="List tenants, oldest first; to members, their own",
    dependencies={"filters": Provide(tenant_filters, sync_to_thread=False)},
)
async def list_tenants(
    services: NamedDependency[Services],
    admin: NamedDependency[Admin],
    filters: NamedDependency[TenantFilters],
    cursor: PageCursor = None,
    after: After = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> TenantPage:
    given = asdict(filters)
    start = BY_ID.start(cursor, given) or (None if after is None else (after,))
    only = await services.members.tenants_of(admin)
    found = await services.tenants.page(filters, start, limit + 1, only)
    roles = await services.members.roles_of(admin, [tenant.id for tenant in found])
    cut = BY_ID.cut(found, limit, lambda tenant: (tenant.id,), given)
    seen = replace(cut, rows=[each for each in cut.rows if each.id in roles])  # it may have lost one since
    return seen.fill(TenantPage, lambda tenant: TenantOut.of(tenant, roles[tenant.id]))


@get("/api/v1/tenants/{tenant:uuid}", summary="One tenant")
async def get_tenant(
    request: AnyRequest, services: NamedDependency[Services], tenant: FromPath[UUID]
) -> Response[TenantOut]:
    return _tagged(request, await services.tenants.get(tenant))


@patch("/api/v1/tenants/{tenant:uuid}", summary="Change a tenant's limits or status")
async def change_tenant(
    request: AnyRequest,
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    data: JSONBody[TenantPatch],
    if_match: IfMatch = None,
) -> Response[TenantOut]:
    return _tagged(request, await services.tenants.change(actor, tenant, data, if_match))


@post("/api/v1/tenants/{tenant:uuid}/suspend", status_code=200, summary="Let no request of a tenant in")
async def suspend_tenant(
    request: AnyRequest,
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    data: JSONBody[Suspension],
) -> TenantOut:
    """Each worker acts on it with the tenant's next request; requests that run end as they would."""
    return TenantOut.of(await services.tenants.suspend(actor, tenant, data.reason), role_of(request.scope))


@post("/api/v1/tenants/{tenant:uuid}/resume", status_code=200, summary="Let a tenant's requests in again")
async def resume_tenant(
    request: AnyRequest,
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
) -> TenantOut:
    return TenantOut.of(await services.tenants.resume(actor, tenant), role_of(request.scope))


@post(OFFBOARDING, status_code=202, summary="Off-board a tenant: suspended now, purged after a grace")
async def offboard_tenant(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
    data: JSONBody[OffboardingIn],
) -> OffboardingOut:
    return OffboardingOut.of(await services.offboardings.begin(actor, tenant, data))


@get(OFFBOARDING, summary="The last off-boarding of a tenant, with the proof of its purge")
async def get_offboarding(services: NamedDependency[Services], tenant: FromPath[UUID]) -> OffboardingOut:
    return OffboardingOut.of(*await services.offboardings.last(tenant))


@delete(OFFBOARDING, opt={WHILE_LEAVING: True}, status_code=200, summary="Undo an off-boarding in its grace")
async def undo_offboarding(
    request: AnyRequest,
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    tenant: FromPath[UUID],
) -> TenantOut:
    return TenantOut.of(await services.offboardings.undo(actor, tenant), role_of(request.scope))


def _tagged(request: AnyRequest, tenant: Tenant) -> Response[TenantOut]:
    headers = {"etag": tag_of(TenantPatch.fields_of(tenant))}
    return Response(TenantOut.of(tenant, role_of(request.scope)), headers=headers)


handlers = [
    create_tenant,
    list_tenants,
    get_tenant,
    change_tenant,
    suspend_tenant,
    resume_tenant,
    offboard_tenant,
    get_offboarding,
    undo_offboarding,
]
