"""Rules of looking at requests that ended."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol
from uuid import UUID

from gateway.db import Database
from gateway.errors import BadRequest, Forbidden, NotFound
from gateway.events import repository
from gateway.events.repository import Filter
from gateway.events.schemas import RequestLine, RequestPage, RequestPlace, RequestStory
from gateway.paging import ById, Order, moment
from gateway.principal import Admin, Principal, Role, Scope, TenantId
from gateway.roles import roles_of

DEFAULT_WINDOW: Final = timedelta(hours=24)
LONGEST_WINDOW: Final = timedelta(days=366)
STORY: Final = "/api/v1/tenants/{tenant}/requests/{request_id}"

_NEWEST_FIRST: Final[Order[ById]] = Order("requests", UUID)


def require_reading(principal: Principal) -> None:
    """Raises `Forbidden`."""
    if not principal.may(Scope.USAGE_READ):
        raise Forbidden("This API key lacks the scope 'usage:read'.")


def window_of(since: datetime | None, until: datetime | None) -> tuple[datetime, datetime]:
    """The last 24 hours by default. Raises `BadRequest`."""
    try:
        end = (moment(until, "until") or datetime.now(UTC) + timedelta(seconds=1)).astimezone(UTC)
        start = (moment(since, "since") or end - DEFAULT_WINDOW).astimezone(UTC)
    except OverflowError:
        raise BadRequest(
            "'since' is not a moment with requests.", param="since", code="invalid_value"
        ) from None
    if not datetime(2000, 1, 1, tzinfo=UTC) <= start < end <= datetime(9000, 1, 1, tzinfo=UTC):
        raise BadRequest("'since' must be before 'until'.", param="since", code="invalid_value")
    if end - start > LONGEST_WINDOW:
        raise BadRequest("At most 366 days at a time.", param="since", code="invalid_value")
    return start, end


class KnowsRoles(Protocol):
    """`gateway.members.service.Members` does."""

    async def roles_of(self, admin: Admin, tenants: Collection[UUID]) -> dict[UUID, Role]: ...


async def place(db: Database, members: KnowsRoles, admin: Admin, name: str) -> RequestPlace:
    """Raises `NotFound` as `story` does, and for one of a tenant in which the account may not read it."""
    request_id = _id_of(name)
    async with db.system_reader() as session:
        tenant = await repository.tenant_of(session, request_id)
    if tenant is None:
        raise _unknown()
    role = (await members.roles_of(admin, [tenant])).get(tenant)
    if role not in roles_of("GET", STORY):
        raise _unknown()
    return RequestPlace(id=request_id, tenant=tenant)


async def story(db: Database, tenant: TenantId, name: str) -> RequestStory:
    """Raises `NotFound`: there is none, it is another tenant's, it is gone by now, or it was one of a flood
    and not kept."""
    request_id = _id_of(name)
    async with db.tenant_reader(tenant) as session:
        row = await repository.one(session, tenant, request_id)
    if row is None:
        raise _unknown()
    return RequestStory.of(row)


def _id_of(name: str) -> UUID:
    try:
        return UUID(name)
    except ValueError:
        raise _unknown() from None


def _unknown() -> NotFound:
    return NotFound("There is no such request.")


async def listed(
    db: Database, tenant: TenantId, wanted: Filter, limit: int, cursor: str | None
) -> RequestPage:
    """Newest first. Raises `BadRequest` for a cursor of another list, `Unavailable` for a look that takes too
    long."""
    filters = {
        "outcome": wanted.outcome,
        "status": wanted.status_class,
        "code": wanted.code,
        "adapter": wanted.adapter,
        "key": wanted.key_id,
        "slow": wanted.slower_than_ms,
    }
    start = _NEWEST_FIRST.start(cursor, filters)
    async with db.tenant_reader(tenant) as session:
        rows = await repository.page(session, tenant, wanted, None if start is None else start[0], limit + 1)
    cut = _NEWEST_FIRST.cut(rows, limit, lambda row: (row.request_id,), filters)
    return RequestPage(
        data=[RequestLine.of(row) for row in cut.rows],
        has_more=cut.has_more,
        next_cursor=cut.next_cursor,
        start=wanted.start,
        end=wanted.end,
    )
