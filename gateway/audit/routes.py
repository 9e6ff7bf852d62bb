"""HTTP of the audit log."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.params import Parameter

from gateway.audit.schemas import EventOut, EventPage
from gateway.principal import TenantId
from gateway.services import Services

PageSize = Annotated[int, Parameter(ge=1, le=200, description="Events in one answer.")]


@get(["/api/v1/audit", "/api/v1/tenants/{tenant:uuid}/audit"], summary="What was changed, newest first")
async def list_events(
    services: Services, tenant: UUID | None = None, before: UUID | None = None, limit: PageSize = 50
) -> EventPage:
    owner = None if tenant is None else TenantId(tenant)
    events = await services.audit.events(owner, before, limit + 1)
    return EventPage([EventOut.of(event) for event in events[:limit]], has_more=len(events) > limit)


handlers = [list_events]
