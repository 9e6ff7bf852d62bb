"""HTTP of requests that ended: which there were, and why one was refused or slow."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, PathParameter, QueryParameter

from gateway.events import service
from gateway.events.event import Outcome
from gateway.events.repository import Filter
from gateway.events.schemas import RequestPage, RequestPlace, RequestStory
from gateway.paging import DEFAULT_LIMIT, PageCursor, PageLimit, Since, Until
from gateway.principal import Admin, Principal
from gateway.services import Services

RequestId = Annotated[str, PathParameter(max_length=36, description="`x-request-id` of its answer.")]
OfOutcome = Annotated[Outcome | None, QueryParameter(description="What became of them.")]
OfStatus = Annotated[
    int | None, QueryParameter(ge=2, le=5, description="Class of their status: 4 is 400 to 499.")
]
OfCode = Annotated[
    str | None, QueryParameter(max_length=64, description="Their error's code, as `rate_limit_exceeded`.")
]
OfAdapter = Annotated[str | None, QueryParameter(max_length=64, description="Name of their adapter.")]
OfKey = Annotated[str | None, QueryParameter(max_length=64, description="Id of their API key.")]
SlowerThan = Annotated[
    float | None, QueryParameter(ge=0, le=1e9, description="Milliseconds that they took at least.")
]


def _wanted(
    since: Since = None,
    until: Until = None,
    outcome: OfOutcome = None,
    status: OfStatus = None,
    code: OfCode = None,
    adapter: OfAdapter = None,
    key: OfKey = None,
    slow_ms: SlowerThan = None,
) -> Filter:
    start, end = service.window_of(since, until)
    return Filter(
        start=start,
        end=end,
        outcome=outcome,
        status_class=status,
        code=code,
        adapter=adapter,
        key_id=key,
        slower_than_ms=slow_ms,
    )


_FILTERED = {"wanted": Provide(_wanted, sync_to_thread=False)}


@get(
    "/v1/requests",
    summary="Your requests of the last days, also those that were refused",
    dependencies=_FILTERED,
)
async def own_requests(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    wanted: NamedDependency[Filter],
    limit: PageLimit = DEFAULT_LIMIT,
    cursor: PageCursor = None,
) -> RequestPage:
    service.require_reading(principal)
    return await service.listed(services.db, principal.tenant, wanted, limit, cursor)


@get("/v1/requests/{request_id:str}", summary="Why one of your requests was refused or slow")
async def own_request(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    request_id: RequestId,
) -> RequestStory:
    service.require_reading(principal)
    return await service.story(services.db, principal.tenant, request_id)


@get(
    "/api/v1/tenants/{tenant:uuid}/requests",
    summary="A tenant's requests of the last days",
    dependencies=_FILTERED,
)
async def tenant_requests(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    tenant: FromPath[UUID],
    wanted: NamedDependency[Filter],
    limit: PageLimit = DEFAULT_LIMIT,
    cursor: PageCursor = None,
) -> RequestPage:
    assert principal.tenant == tenant  # the door made the principal from the path
    return await service.listed(services.db, principal.tenant, wanted, limit, cursor)


@get(
    "/api/v1/tenants/{tenant:uuid}/requests/{request_id:str}",
    summary="Why one of a tenant's requests was refused or slow",
)
async def tenant_request(
    services: NamedDependency[Services],
    principal: NamedDependency[Principal],
    tenant: FromPath[UUID],
    request_id: RequestId,
) -> RequestStory:
    assert principal.tenant == tenant  # the door made the principal from the path
    return await service.story(services.db, principal.tenant, request_id)


@get("/api/v1/requests/{request_id:str}", summary="Whose a request is, of those that the account may read")
async def request_place(
    services: NamedDependency[Services], admin: NamedDependency[Admin], request_id: RequestId
) -> RequestPlace:
    """For an id that somebody has from an answer's header."""
    return await service.place(services.db, services.members, admin, request_id)


handlers = [own_requests, own_request, tenant_requests, tenant_request, request_place]
