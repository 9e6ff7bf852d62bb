"""HTTP of the audit log."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter

from gateway.audit.schemas import EventOut, EventPage
from gateway.principal import TenantId
from gateway.services import Services

PageSize = Annotated[int, QueryParameter(ge=1, le=200, description="Events in one answer.")]
Before = FromQuery[UUID | None]


@get("/api/v1/audit", summary="What was changed, newest first")
async def list_events(
    services: NamedDependency[Services], before: Before = None, limit: PageSize = 50
) -> EventPage:
    return await _page(services, None, before, limit)


@get("/api/v1/tenants/{tenant:uuid}/audit", summary="What was changed of a tenant, newest first")
async def list_tenant_events(
    services: NamedDependency[Services], tenant: FromPath[UUID], before: Before = None, limit: PageSize = 50
) -> EventPage:
    return await _page(services, TenantId(tenant), before, limit)


async def _page(services: Services, tenant: TenantId | None, before: UUID | None, limit: int) -> EventPage:
    events = await services.audit.events(tenant, before, limit + 1)
    return EventPage([EventOut.of(event) for event in events[:limit]], has_more=len(events) > limit)


handlers = [list_events, list_tenant_events]
