"""Rules of reading usage."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from gateway.db import Database
from gateway.errors import BadRequest, Forbidden
from gateway.principal import Principal, Scope, TenantId
from gateway.usage import repository
from gateway.usage.schemas import UsageReport

MAX_DAYS = 92
DEFAULT_DAYS = 31
YEARS = range(2000, 9001)  # far enough from where dates end that days can be added and taken


def require_usage(principal: Principal) -> None:
    """A tenant's own totals may be read with `usage:read`, and with a key that makes them. Raises
    `Forbidden`."""
    if not (principal.may(Scope.USAGE_READ) or principal.may(Scope.INFERENCE)):
        raise Forbidden("This API key lacks the scope 'usage:read'.")


async def report(db: Database, tenant: TenantId, first: date | None, last: date | None) -> UsageReport:
    """Billed usage by day and adapter, both days included. Raises `BadRequest` for a span that makes no
    sense."""
    for param, day in (("first", first), ("last", last)):
        if day is not None and day.year not in YEARS:
            raise BadRequest(f"'{param}' is not a year with usage.", param=param, code="invalid_value")
    last = last or datetime.now(UTC).date()
    first = first or last - timedelta(days=DEFAULT_DAYS - 1)
    if first > last:
        raise BadRequest("'first' is after 'last'.", param="first", code="invalid_value")
    if (last - first).days >= MAX_DAYS:
        raise BadRequest(f"At most {MAX_DAYS} days at a time.", param="first", code="invalid_value")
    async with db.tenant_reader(tenant) as session:
        lines = await repository.totals(session, tenant, first, last)
    return UsageReport.of(first, last, lines)
