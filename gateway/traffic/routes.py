"""HTTP of figures of requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

from litestar import get
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, QueryParameter

from gateway.events.service import require_reading
from gateway.principal import Principal, TenantId
from gateway.services import Services
from gateway.traffic import service
from gateway.traffic.schemas import RequestMetrics
from gateway.traffic.service import Asked, By, Kept

SPAN = "^[1-9][0-9]{0,6}[smhd]$"

Window = Annotated[
    str, QueryParameter(pattern=SPAN, description="How far back, as 30m, 12h or 7d; at most 366 days.")
]
From = Annotated[datetime | None, QueryParameter(description="RFC 3339; goes before `window`.")]
To = Annotated[datetime | None, QueryParameter(description="RFC 3339; now when absent. Goes with `since`.")]
Step = Annotated[
    str | None,
    QueryParameter(pattern=SPAN, description="Whole minutes, as 5m; about a hundred steps if absent."),
]
ByAdapter = Annotated[
    Literal["adapter"] | None, QueryParameter(description="A series for each of the 20 largest.")
]
ByAny = Annotated[By | None, QueryParameter(description="A series for each of the 20 largest.")]


Points = Annotated[bool, QueryParameter(description="Its steps, too; else only what each series comes to.")]


def _of_one(
    window: Window = "1h",
    since: From = None,
    until: To = None,
    step: Step = None,
    by: ByAdapter = None,
    points: Points = True,
) -> Asked:
    return Asked(window=window, since=since, until=until, step=step, by=by, points=points)


def _of_all(
    window: Window = "1h",
    since: From = None,
    until: To = None,
    step: Step = None,
    by: ByAny = None,
    points: Points = True,
) -> Asked:
    return Asked(window=window, since=since, until=until, step=step, by=by, points=points)


OF_ONE = {"asked": Provide(_of_one, sync_to_thread=False)}
OF_ALL = {"asked": Provide(_of_all, sync_to_thread=False)}


@get(
    "/v1/metrics/requests",
    summary="Figures of your requests: counts, tokens, percentiles of times",
    dependencies=OF_ONE,
)
async def own_metrics(
    services: NamedDependency[Services], principal: NamedDependency[Principal], asked: NamedDependency[Asked]
) -> RequestMetrics:
    require_reading(principal)
    return await _metrics(services, principal.tenant, asked)


@get(
    "/api/v1/tenants/{tenant:uuid}/metrics/requests",
    summary="Figures of a tenant's requests",
    dependencies=OF_ONE,
)
async def tenant_metrics(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    tenant: FromPath[UUID],
    asked: NamedDependency[Asked],
) -> RequestMetrics:
    assert principal.tenant == tenant  # the door made the principal from the path
    return await _metrics(services, principal.tenant, asked)


@get("/api/v1/metrics/requests", summary="Figures of all tenants' requests", dependencies=OF_ALL)
async def all_metrics(services: NamedDependency[Services], asked: NamedDependency[Asked]) -> RequestMetrics:
    return await _metrics(services, None, asked)


async def _metrics(services: Services, tenant: TenantId | None, asked: Asked) -> RequestMetrics:
    look = service.look_of(asked, tenant=tenant, kept=Kept.of(services.settings), now=datetime.now(UTC))
    return await service.metrics(services.db, look)


handlers = [own_metrics, tenant_metrics, all_metrics]
