"""Who may reach which route. Closed by default: a route that says nothing needs a credential of its prefix.

What a handler says of itself, in `opt`:
- `PUBLIC: True`: needs no credential; a test lists all that say so.
- `SCOPE: Scope.X`: under `/v1`, the API key must have it.
- `METHODS: ("POST",)`: for `@asgi` handlers, which Litestar calls for any method.
- `EPOCH_CHECKED: True`: the handler compares epochs itself (the limiter returns it), so the door need not
  ask Redis.
- `WHILE_LEAVING: True`: changes a tenant that is being off-boarded too.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope as AsgiScope

from gateway.errors import Forbidden, MethodNotAllowed, NotFound, Unauthenticated
from gateway.principal import Admin, Principal, Scope
from gateway.services import services_of

PUBLIC: Final = "public"
SCOPE: Final = "scope"
METHODS: Final = "methods"
EPOCH_CHECKED: Final = "epoch_checked"
WHILE_LEAVING: Final = "while_leaving"

TENANT_ROUTES: Final = "/v1/"
ADMIN_ROUTES: Final = "/api/v1/"
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}

Connection = ASGIConnection[Any, Any, Any, Any]


def principal_of(scope: AsgiScope) -> Principal:
    """Whom the door let in under `/v1`, or the tenant an admin acts for under `/api/v1/tenants/{tenant}`."""
    found = scope["state"]["principal"]
    assert isinstance(found, Principal)
    return found


def admin_of(scope: AsgiScope) -> Admin:
    """The operator whom the door let in under `/api/v1`."""
    found = scope["state"]["admin"]
    assert isinstance(found, Admin)
    return found


async def guard(connection: Connection, handler: BaseRouteHandler) -> None:
    """Runs before every handler, `@asgi` ones too. Raises what the client should hear."""
    methods = handler.opt.get(METHODS)
    method = str(connection.scope.get("method", ""))
    if methods is not None and method not in methods:
        raise MethodNotAllowed(f"Use {' or '.join(methods)} here.", headers={"allow": ", ".join(methods)})
    if handler.opt.get(PUBLIC):
        return
    route = str(connection.scope["path_template"])
    if route.startswith(TENANT_ROUTES):
        connection.scope["state"]["principal"] = await _tenant(connection, handler)
    elif route.startswith(ADMIN_ROUTES):
        await _operator(connection, method)
        await _require_staying(connection, handler, method)
    else:
        raise NotFound("There is nothing here.")


async def _tenant(connection: Connection, handler: BaseRouteHandler) -> Principal:
    authenticator = services_of(connection.scope).authenticator
    header = connection.headers.get("authorization")
    if handler.opt.get(EPOCH_CHECKED):
        principal = await authenticator.principal(header)
    else:
        principal = await authenticator.fresh_principal(header)
    scope = handler.opt.get(SCOPE)
    if isinstance(scope, Scope) and not principal.may(scope):
        raise Forbidden(f"This API key lacks the scope '{scope}'.")
    return principal


async def _operator(connection: Connection, method: str) -> None:
    services = services_of(connection.scope)
    if "authorization" in connection.headers:
        admin = await services.admins.by_token(connection.headers["authorization"])
    else:
        session = await services.admins.by_session(connection.cookies)
        if method not in _SAFE_METHODS:
            session.require_csrf(connection.headers.get("x-csrf-token"))
        admin = session.admin
    connection.scope["state"]["admin"] = admin
    tenant = connection.path_params.get("tenant")
    if tenant is not None:
        if not isinstance(tenant, UUID):
            raise Unauthenticated
        connection.scope["state"]["principal"] = await services.tenants.principal_for(admin, tenant)


async def _require_staying(connection: Connection, handler: BaseRouteHandler, method: str) -> None:
    """Raises `Conflict` for a change of a tenant that is leaving or gone."""
    tenant = connection.path_params.get("tenant")
    if isinstance(tenant, UUID) and method not in _SAFE_METHODS and not handler.opt.get(WHILE_LEAVING):
        await services_of(connection.scope).tenants.require_active(tenant)
