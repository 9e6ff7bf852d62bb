"""HTTP of the platform's months: operators only."""

from __future__ import annotations

from datetime import date
from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from gateway.billing.months import month_text
from gateway.billing.periods.schemas import (
    PeriodTenantOut,
    PeriodTenantPage,
    PlatformPeriodOut,
    PlatformPeriodPage,
)
from gateway.billing.statements.service import wanted_month
from gateway.paging import DEFAULT_LIMIT, Order, PageCursor, PageLimit
from gateway.services import Services

BY_MONTH: Order[tuple[date]] = Order("platform-periods", date)
BY_TENANT: Order[tuple[UUID]] = Order("period-tenants", UUID)

Ledger = Annotated[
    bool, QueryParameter(description="Count the ledger's rows anew and compare: takes longer.")
]


@get("/api/v1/billing/periods", summary="Months of all tenants, newest first")
async def list_platform_periods(
    services: NamedDependency[Services], cursor: PageCursor = None, limit: PageLimit = DEFAULT_LIMIT
) -> PlatformPeriodPage:
    """Which are closed, and why one that is over is not."""
    start = BY_MONTH.start(cursor) or (None,)
    found = await services.billing.periods.months(start[0], limit + 1)
    cut = BY_MONTH.cut(found, limit, lambda each: (each.month,))
    return cut.fill(PlatformPeriodPage, PlatformPeriodOut.of)


@get("/api/v1/billing/periods/{month:str}/tenants", summary="What each tenant is billed in a month")
async def list_period_tenants(
    services: NamedDependency[Services],
    month: FromPath[str],
    ledger: Ledger = False,
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> PeriodTenantPage:
    """With the reconciliation of used, charged and, when asked for, the ledger's own tokens."""
    day = wanted_month(month)
    given = {"month": month, "ledger": ledger}
    start = BY_TENANT.start(cursor, given) or (None,)
    found = await services.billing.periods.tenants(day, start[0], limit + 1, ledger=ledger)
    cut = BY_TENANT.cut(found.rows, limit, lambda each: (each.tenant,), given)
    return cut.fill(
        PeriodTenantPage, PeriodTenantOut.of, month=month_text(day), complete_until=found.complete_until
    )


handlers = [list_platform_periods, list_period_tenants]
