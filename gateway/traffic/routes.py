"""HTTP of figures of requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal
from uuid import UUID

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from gateway.events.service import require_reading
from gateway.principal import Principal, TenantId
from gateway.services import Services
from gateway.traffic import service
from gateway.traffic.schemas import RequestMetrics
from gateway.traffic.service import By, Kept

SPAN = "^[1-9][0-9]{0,6}[smhd]$"

Window = Annotated[
    str, QueryParameter(pattern=SPAN, description="How far back, as 30m, 12h or 7d; at most 366 days.")
]
Step = Annotated[
    str | None,
    QueryParameter(pattern=SPAN, description="Whole minutes, as 5m; about a hundred steps if absent."),
]
ByAdapter = Annotated[
    Literal["adapter"] | None, QueryParameter(description="A series for each of the 20 largest.")
]
ByAny = Annotated[By | None, QueryParameter(description="A series for each of the 20 largest.")]


@get("/v1/metrics/requests", summary="Figures of your requests: counts, tokens, percentiles of times")
async def own_metrics(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    window: Window = "1h",
    step: Step = None,
    by: ByAdapter = None,
) -> RequestMetrics:
    require_reading(principal)
    return await _metrics(services, principal.tenant, window, step, by)


@get("/api/v1/tenants/{tenant:uuid}/metrics/requests", summary="Figures of a tenant's requests")
async def tenant_metrics(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    tenant: FromPath[UUID],
    window: Window = "1h",
    step: Step = None,
    by: ByAdapter = None,
) -> RequestMetrics:
    assert principal.tenant == tenant  # the door made the principal from the path
    return await _metrics(services, principal.tenant, window, step, by)


@get("/api/v1/metrics/requests", summary="Figures of all tenants' requests")
async def all_metrics(
    services: NamedDependency[Services], window: Window = "1h", step: Step = None, by: ByAny = None
) -> RequestMetrics:
    return await _metrics(services, None, window, step, by)


async def _metrics(
    services: Services, tenant: TenantId | None, window: str, step: str | None, by: By | None
) -> RequestMetrics:
    look = service.look_of(
        window,
        step,
        by,
        tenant=tenant,
        kept=Kept.of(services.settings),
        now=datetime.now(UTC),
    )
    return await service.metrics(services.db, look)


handlers = [own_metrics, tenant_metrics, all_metrics]
