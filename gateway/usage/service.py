"""Rules of reading usage."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from gateway.db import Database
from gateway.errors import BadRequest, Forbidden
from gateway.principal import Principal, Scope, TenantId
from gateway.usage import repository
from gateway.usage.schemas import UsageReport
from gateway.usage.zones import Period, UnknownZone, Window, days_of, today, window_of, zone_of

MAX_DAYS = 92
DEFAULT_DAYS = 31
YEARS = range(2000, 9001)  # far enough from where dates end that days can be added and taken


@dataclass(frozen=True, slots=True)
class Asked:
    """A window as somebody names it: by its days, both included, or by `period`. Without a `zone`, the
    tenant's."""

    first: date | None = None
    last: date | None = None
    zone: str | None = None
    period: Period | None = None


def require_usage(principal: Principal) -> None:
    """A tenant's own totals may be read with `usage:read`, and with a key that makes them. Raises
    `Forbidden`."""
    if not (principal.may(Scope.USAGE_READ) or principal.may(Scope.INFERENCE)):
        raise Forbidden("This API key lacks the scope 'usage:read'.")


async def report(db: Database, tenant: TenantId, asked: Asked) -> UsageReport:
    """Billed usage by day and adapter, by the end of the requests; both days included. Raises `BadRequest`
    for a window that makes no sense."""
    window = await window_asked(db, tenant, asked)
    async with db.tenant_snapshot(tenant) as session:
        found = await repository.totals(session, tenant, window)
    async with db.system_reader() as system:
        owners = {line.owner for line in found.lines if line.owner is not None}
        names = await repository.names_of_owners(system, owners)
    return UsageReport.of(window, found, names)


async def window_asked(db: Database, tenant: TenantId, asked: Asked) -> Window:
    """Whole days of a zone; by default the last `DEFAULT_DAYS`, in the tenant's zone. Raises `BadRequest`."""
    zone = asked.zone
    if zone is None:
        async with db.system_reader() as session:
            zone = await repository.reporting_zone(session, tenant)
    return window_between(asked, zone)


def window_between(asked: Asked, zone_name: str) -> Window:
    """Raises `BadRequest`."""
    try:
        zone = zone_of(zone_name)
    except UnknownZone as error:
        raise BadRequest(
            "'zone' is not an IANA time zone, such as Europe/Vienna.", param="zone", code="invalid_value"
        ) from error
    first, last = asked.first, asked.last
    if asked.period is not None:
        if first is not None or last is not None:
            raise BadRequest(
                "'period' names the days already: leave 'first' and 'last' out.",
                param="period",
                code="invalid_value",
            )
        first, last = days_of(asked.period, today(zone))
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
