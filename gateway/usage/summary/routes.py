"""HTTP of summed usage."""

from __future__ import annotations

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from gateway.access import SCOPE
from gateway.principal import Principal, Scope
from gateway.services import Services
from gateway.usage.routes import WINDOW
from gateway.usage.service import Asked
from gateway.usage.summary.repository import By
from gateway.usage.summary.schemas import UsageSummary
from gateway.usage.summary.service import summary

PATHS = [f"{root}/usage/summary" for root in ("/v1", "/api/v1/tenants/{tenant:uuid}")]


@get(
    PATHS,
    opt={SCOPE: Scope.USAGE_READ},
    summary="Billed usage by day, and by adapter, key or service class",
    dependencies=WINDOW,
)
async def usage_summary(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    asked: NamedDependency[Asked],
    by: FromQuery[By] = By.ADAPTER,
) -> UsageSummary:
    """The sum of the days is the sum of the groups and of the window, to the token and to 10⁻¹²."""
    return await summary(services.db, principal.tenant, asked, by)


handlers = [usage_summary]
