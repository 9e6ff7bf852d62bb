"""HTTP of changes: streams for operators, and for members of a tenant."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

from litestar import Request, get
from litestar.datastructures import State
from litestar.di import NamedDependency
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, HeaderParameter, QueryParameter
from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.access import UNTOUCHED, admin_of, role_of, still_admitted
from gateway.admin_auth.sessions import COOKIE
from gateway.changes.follower import Audience
from gateway.changes.service import Asked
from gateway.errors import NotAcceptable
from gateway.principal import Role
from gateway.services import Services

EVENT_STREAM: Final = "text/event-stream"
MAX_PLACE: Final = 64
_OPT: Final[dict[str, Any]] = {UNTOUCHED: True}
_RESPONSES: Final = {
    200: ResponseSpec(
        data_container=str,
        media_type=EVENT_STREAM,
        generate_examples=False,
        description=(
            "Server-sent events until either side ends it: `begin` first, then `change` with a change each; "
            "`reset`: some may be missing, read all; `end` with its reason before it is closed from here."
        ),
    ),
    406: ResponseSpec(
        data_container=None,
        generate_examples=False,
        description="Only text/event-stream is to be had here.",
    ),
}

Found = NamedDependency[Services]
AnyRequest = Request[Any, Any, State]
LastEventId = Annotated[
    str | None,
    HeaderParameter(
        name="last-event-id",
        max_length=MAX_PLACE,
        description="Goes on behind the event of this id, if it is known here still.",
    ),
]
After = Annotated[
    str | None,
    QueryParameter(max_length=MAX_PLACE, description="The same, for clients that can't send the header."),
]


@get("/api/v1/changes", opt=_OPT, responses=_RESPONSES, summary="What changes, as it happens: a stream")
async def follow_changes(
    request: AnyRequest, services: Found, last_event_id: LastEventId = None, after: After = None
) -> ASGIApp:
    audience = Audience(Role.OPERATOR, None, _cookie(request))
    return _stream(request, services, audience, last_event_id or after)


@get(
    "/api/v1/tenants/{tenant:uuid}/changes",
    opt=_OPT,
    responses=_RESPONSES,
    summary="What changes of a tenant, as it happens: a stream",
)
async def follow_tenant_changes(
    request: AnyRequest,
    services: Found,
    tenant: FromPath[UUID],
    last_event_id: LastEventId = None,
    after: After = None,
) -> ASGIApp:
    """As far as the role of who asks reads it."""
    role = role_of(request.scope)
    assert role is not None
    return _stream(request, services, Audience(role, tenant, _cookie(request)), last_event_id or after)


def _stream(request: AnyRequest, services: Services, audience: Audience, after: str | None) -> ASGIApp:
    _require_accepted(request.headers.get("accept", EVENT_STREAM))

    async def still() -> Role:
        await still_admitted(request)
        return role_of(request.scope) or Role.OPERATOR  # of no tenant: the route is operators' alone

    asked = Asked(admin_of(request.scope).id, audience, after, still)

    async def answer(_scope: Scope, receive: Receive, send: Send) -> None:
        await services.changes.follow(asked, receive, send)

    return answer


def _cookie(request: AnyRequest) -> str | None:
    """Of the session that is asked by; None: a token is."""
    return None if "authorization" in request.headers else request.cookies.get(COOKIE)


def _require_accepted(accept: str) -> None:
    """Raises `NotAcceptable` for who would not know what to do with a stream."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if not kinds & {EVENT_STREAM, "text/*", "*/*", ""}:
        raise NotAcceptable(f"Only {EVENT_STREAM} is to be had here.")


handlers = [follow_changes, follow_tenant_changes]
