"""HTTP of periods and statements, for tenants and for operators."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from litestar import get
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.params import QueryParameter

from gateway.access import SCOPE
from gateway.billing.statements.schemas import PeriodList, PeriodOut, StatementOut
from gateway.billing.statements.service import wanted_month
from gateway.paging import DEFAULT_LIMIT, Order, PageCursor, PageLimit
from gateway.principal import Principal, Scope
from gateway.services import Services

BILLING = ["/v1/billing", "/api/v1/tenants/{tenant:uuid}/billing"]
READ: dict[str, object] = {SCOPE: Scope.USAGE_READ}
BY_MONTH: Order[tuple[date]] = Order("periods", date)

Month = Annotated[
    str | None,
    QueryParameter(
        pattern=r"^20[0-9]{2}-(0[1-9]|1[0-2])$", description="UTC, as 2026-11; this one when absent."
    ),
]


@get([f"{path}/periods" for path in BILLING], opt=READ, summary="Months with charges, newest first")
async def list_periods(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    cursor: PageCursor = None,
    limit: PageLimit = DEFAULT_LIMIT,
) -> PeriodList:
    given = {"tenant": principal.tenant}
    start = BY_MONTH.start(cursor, given) or (None,)
    until, found = await services.billing.statements.periods(principal.tenant, start[0], limit + 1)
    cut = BY_MONTH.cut(found, limit, lambda period: (period.first_day,), given)
    return cut.fill(PeriodList, PeriodOut.of, complete_until=until)


@get(
    [f"{path}/statement" for path in BILLING],
    opt=READ,
    summary="A month's statement, or its preview",
    responses={409: ResponseSpec(None, description="It has more lines than one answer holds.")},
)
async def get_statement(
    services: NamedDependency[Services], principal: NamedDependency[Principal], month: Month = None
) -> StatementOut:
    """A preview while the month is open."""
    return await services.billing.statements.statement(principal.tenant, wanted_month(month))


handlers = [list_periods, get_statement]
