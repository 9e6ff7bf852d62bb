"""HTTP of usage."""

from __future__ import annotations

from datetime import date
from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from gateway.principal import Principal
from gateway.services import Services
from gateway.usage.schemas import UsageReport
from gateway.usage.service import report, require_usage

First = Annotated[date | None, QueryParameter(description="First day; the last 31 days when absent.")]
Last = Annotated[date | None, QueryParameter(description="Last day; today when absent.")]
Zone = Annotated[
    str, QueryParameter(max_length=64, description="IANA time zone of the days, such as Europe/Vienna.")
]


@get("/v1/usage", summary="Your billed usage by day and adapter")
async def own_usage(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    first: First = None,
    last: Last = None,
    zone: Zone = "UTC",
) -> UsageReport:
    require_usage(principal)
    return await report(services.db, principal.tenant, first, last, zone)


@get("/api/v1/tenants/{tenant:uuid}/usage", summary="A tenant's billed usage by day and adapter")
async def tenant_usage(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    tenant: FromPath[UUID],
    first: First = None,
    last: Last = None,
    zone: Zone = "UTC",
) -> UsageReport:
    assert principal.tenant == tenant  # the door made the principal from the path
    return await report(services.db, principal.tenant, first, last, zone)


handlers = [own_usage, tenant_usage]
