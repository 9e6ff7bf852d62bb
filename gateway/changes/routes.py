"""HTTP of changes: streams for operators, and for members of a tenant."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs

from litestar import asgi
from litestar.connection import ASGIConnection
from litestar.types import Receive, Send
from litestar.types import Scope as AsgiScope

from gateway.access import METHODS, UNTOUCHED, admin_of, role_of, still_admitted
from gateway.admin_auth.sessions import COOKIE
from gateway.changes.follower import Audience
from gateway.changes.schemas import OPERATION as FOLLOWED
from gateway.changes.service import Asked
from gateway.errors import NotAcceptable
from gateway.openapi import OPERATION
from gateway.principal import Role
from gateway.services import services_of

EVENT_STREAM: Final = "text/event-stream"
MAX_PLACE: Final = 64
_OF_TENANT: Final = {
    **FOLLOWED,
    "summary": "What changes of a tenant, as it happens: server-sent events",
    "parameters": [
        {"name": "tenant", "in": "path", "required": True, "schema": {"type": "string", "format": "uuid"}},
        *FOLLOWED["parameters"],
    ],
}
_OPT: Final[dict[str, Any]] = {METHODS: ("GET",), UNTOUCHED: True}


@asgi("/api/v1/changes", opt={**_OPT, OPERATION: {"get": FOLLOWED}}, copy_scope=False)
async def follow_changes(scope: AsgiScope, receive: Receive, send: Send) -> None:
    """What changes, as it happens: server-sent events."""
    await _follow(scope, receive, send, Role.OPERATOR)


@asgi("/api/v1/tenants/{tenant:uuid}/changes", opt={**_OPT, OPERATION: {"get": _OF_TENANT}}, copy_scope=False)
async def follow_tenant_changes(scope: AsgiScope, receive: Receive, send: Send) -> None:
    """What changes of a tenant, as it happens: server-sent events."""
    role = role_of(scope)
    assert role is not None
    await _follow(scope, receive, send, role)


async def _follow(scope: AsgiScope, receive: Receive, send: Send, role: Role) -> None:
    connection: ASGIConnection[Any, Any, Any, Any] = ASGIConnection(scope)
    _require_accepted(connection.headers.get("accept", EVENT_STREAM))
    cookie = None if "authorization" in connection.headers else connection.cookies.get(COOKIE)
    asked = Asked(
        account=admin_of(scope).id,
        audience=Audience(role, scope["path_params"].get("tenant"), cookie),
        after=_place(connection),
        still=lambda: still_admitted(connection),
    )
    await services_of(scope).changes.follow(asked, receive, send)


def _require_accepted(accept: str) -> None:
    """Raises `NotAcceptable` for who would not know what to do with a stream."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    if not kinds & {EVENT_STREAM, "text/*", "*/*", ""}:
        raise NotAcceptable(f"Only {EVENT_STREAM} is to be had here.")


def _place(connection: ASGIConnection[Any, Any, Any, Any]) -> str | None:
    """Where to go on; a browser's own header goes before what its page wrote into the address."""
    query = parse_qs(connection.scope["query_string"].decode("latin-1")).get("after", [None])[0]
    found = connection.headers.get("last-event-id") or query
    return found[:MAX_PLACE] if found else None


handlers = [follow_changes, follow_tenant_changes]
