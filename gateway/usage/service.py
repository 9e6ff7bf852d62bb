"""Rules of reading usage."""

from __future__ import annotations

from datetime import date, timedelta

from gateway.db import Database
from gateway.errors import BadRequest, Forbidden
from gateway.principal import Principal, Scope, TenantId
from gateway.usage import repository
from gateway.usage.schemas import UsageReport
from gateway.usage.zones import UnknownZone, Window, today, window_of, zone_of

MAX_DAYS = 92
DEFAULT_DAYS = 31
YEARS = range(2000, 9001)  # far enough from where dates end that days can be added and taken


def require_usage(principal: Principal) -> None:
    """A tenant's own totals may be read with `usage:read`, and with a key that makes them. Raises
    `Forbidden`."""
    if not (principal.may(Scope.USAGE_READ) or principal.may(Scope.INFERENCE)):
        raise Forbidden("This API key lacks the scope 'usage:read'.")


async def report(
    db: Database, tenant: TenantId, first: date | None, last: date | None, zone_name: str = "UTC"
) -> UsageReport:
    """Billed usage by day and adapter, by the end of the requests; both days included. Raises `BadRequest`
    for a window that makes no sense."""
    window = window_between(first, last, zone_name)
    async with db.tenant_snapshot(tenant) as session:
        found = await repository.totals(session, tenant, window)
    async with db.system_reader() as system:
        names = await repository.names_of_owners(system, found.lines)
    return UsageReport.of(window, found, names)


def window_between(first: date | None, last: date | None, zone_name: str) -> Window:
    """Whole days of the zone, both included; by default the last `DEFAULT_DAYS`. Raises `BadRequest`."""
    try:
        zone = zone_of(zone_name)
    except UnknownZone as error:
        raise BadRequest(
            "'zone' is not an IANA time zone, such as Europe/Vienna.", param="zone", code="invalid_value"
        ) from error
    for param, day in (("first", first), ("last", last)):
        if day is not None and day.year not in YEARS:
            raise BadRequest(f"'{param}' is not a year with usage.", param=param, code="invalid_value")
    last = last or today(zone)
    first = first or last - timedelta(days=DEFAULT_DAYS - 1)
    if first > last:
        raise BadRequest("'first' is after 'last'.", param="first", code="invalid_value")
    if (last - first).days >= MAX_DAYS:
        raise BadRequest(f"At most {MAX_DAYS} days at a time.", param="first", code="invalid_value")
    return window_of(zone, first, last)
