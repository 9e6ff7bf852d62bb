"""HTTP of usage."""

from __future__ import annotations

from datetime import date
from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, QueryParameter

from gateway.principal import Principal
from gateway.services import Services
from gateway.usage.schemas import UsageReport
from gateway.usage.service import Asked, report, require_usage
from gateway.usage.zones import Period

First = Annotated[date | None, QueryParameter(description="First day; the last 31 days when absent.")]
Last = Annotated[date | None, QueryParameter(description="Last day; today when absent.")]
Zone = Annotated[
    str | None,
    QueryParameter(
        max_length=64,
        description="IANA time zone of the days, such as Europe/Vienna; the tenant's when absent.",
    ),
]
Named = Annotated[
    Period | None, QueryParameter(description="Instead of `first` and `last`: days of the zone up to today.")
]


def window_wanted(first: First = None, last: Last = None, zone: Zone = None, period: Named = None) -> Asked:
    return Asked(first, last, zone, period)


WINDOW = {"asked": Provide(window_wanted, sync_to_thread=False)}


@get("/v1/usage", summary="Your billed usage by day and adapter", dependencies=WINDOW)
async def own_usage(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    asked: NamedDependency[Asked],
) -> UsageReport:
    require_usage(principal)
    return await report(services.db, principal.tenant, asked)


@get(
    "/api/v1/tenants/{tenant:uuid}/usage",
    summary="A tenant's billed usage by day and adapter",
    dependencies=WINDOW,
)
async def tenant_usage(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    tenant: FromPath[UUID],
    asked: NamedDependency[Asked],
) -> UsageReport:
    assert principal.tenant == tenant  # the door made the principal from the path
    return await report(services.db, principal.tenant, asked)


handlers = [own_usage, tenant_usage]
