"""Who may reach which route. Closed by default: a route that says nothing needs a credential of its prefix.

What a handler says of itself, in `opt`:
- `PUBLIC: True`: needs no credential; a test lists all that say so.
- `SCOPE: Scope.X`: under `/v1`, the API key must have it.
- `METHODS: ("POST",)`: for `@asgi` handlers, which Litestar calls for any method.
- `EPOCH_CHECKED: True`: the handler compares epochs itself (the limiter returns it), so the door need not
  ask Redis.
- `WHILE_LEAVING: True`: changes a tenant that is being off-boarded too.
- `UNTOUCHED: True`: the door does not keep the session alive that asks for it.

Under `/api/v1` the table in `gateway/roles.py` says which roles may.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Scope as AsgiScope

from gateway.api_keys.networks import require_address
from gateway.client_address import client_address
from gateway.credentials import authorization_of
from gateway.errors import Forbidden, MethodNotAllowed, NotFound, Unauthenticated
from gateway.principal import Admin, Principal, Role, Scope, TenantId
from gateway.roles import EVERYONE, SCOPES, roles_of
from gateway.services import services_of
from gateway.tenants.service import no_such_tenant

PUBLIC: Final = "public"
SCOPE: Final = "scope"
METHODS: Final = "methods"
EPOCH_CHECKED: Final = "epoch_checked"
WHILE_LEAVING: Final = "while_leaving"
UNTOUCHED: Final = "untouched"

TENANT_ROUTES: Final = "/v1/"
ADMIN_ROUTES: Final = "/api/v1/"
SESSION: Final = "/api/v1/session"
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}

Connection = ASGIConnection[Any, Any, Any, Any]


def principal_of(scope: AsgiScope) -> Principal:
    """Whom the door let in under `/v1`, or the tenant an admin acts for under `/api/v1/tenants/{tenant}`."""
    found = scope["state"]["principal"]
    assert isinstance(found, Principal)
    return found


def admin_of(scope: AsgiScope) -> Admin:
    """The account that the door let in under `/api/v1`."""
    found = scope["state"]["admin"]
    assert isinstance(found, Admin)
    return found


def role_of(scope: AsgiScope) -> Role | None:
    """As what an account acts for the tenant of the path; None for an API key, under `/v1`."""
    found = scope["state"].get("role")
    assert found is None or isinstance(found, Role)
    return found


async def guard(connection: Connection, handler: BaseRouteHandler) -> None:
    """Runs before every handler, `@asgi` ones too. Raises what the client should hear."""
    methods = handler.opt.get(METHODS)
    method = str(connection.scope.get("method", ""))
    if methods is not None and method not in methods:
        raise MethodNotAllowed(f"Use {' or '.join(methods)} here.", headers={"allow": ", ".join(methods)})
    route = str(connection.scope["path_template"])
    if route.startswith(ADMIN_ROUTES) and not connection.scope["raw_path"].startswith(ADMIN_ROUTES.encode()):
        raise NotFound("There is nothing here.")  # spelled otherwise (/%61pi), it passes the rules of a proxy
    if handler.opt.get(PUBLIC):
        return
    if route.startswith(TENANT_ROUTES):
        connection.scope["state"]["principal"] = await _tenant(connection, handler)
    elif route.startswith(ADMIN_ROUTES):
        await _account(connection, method, route, touch=not handler.opt.get(UNTOUCHED))
        await _require_staying(connection, handler, method)
    else:
        raise NotFound("There is nothing here.")


async def still_admitted(connection: Connection) -> None:
    """Asks at the door once more, for an answer that goes on. Raises as the door does."""
    route = str(connection.scope["path_template"])
    await _account(connection, str(connection.scope.get("method", "")), route, touch=False)


async def _tenant(connection: Connection, handler: BaseRouteHandler) -> Principal:
    services = services_of(connection.scope)
    authenticator = services.authenticator
    header = authorization_of(connection.scope)
    if handler.opt.get(EPOCH_CHECKED):
        principal = await authenticator.principal(header)
    else:
        principal = await authenticator.fresh_principal(header)
    address = connection.scope["state"]["address"] = client_address(connection.scope, services.proxies)
    scope = handler.opt.get(SCOPE)
    try:
        require_address(principal, address)
        _require_scope(principal, scope)
    except Forbidden as error:
        if scope is Scope.INFERENCE and METHODS in handler.opt:
            services.serving.turned_away(connection.scope, principal, error)
        raise
    return principal


def _require_scope(principal: Principal, scope: object) -> None:
    if isinstance(scope, Scope) and not principal.may(scope):
        raise Forbidden(f"This API key lacks the scope '{scope}'.")


async def _account(connection: Connection, method: str, route: str, *, touch: bool) -> None:
    """Raises `Unauthenticated`; `NotFound` for a tenant in which the account has no role, whatever the route;
    `Forbidden` for a role that the route does not name."""
    services = services_of(connection.scope)
    if "authorization" in connection.headers:
        admin = await services.admins.by_token(connection.headers["authorization"])
    else:
        session = await services.admins.by_session(connection.cookies, touch=touch)
        if method not in _SAFE_METHODS:
            session.require_csrf(connection.headers.get("x-csrf-token"))
        if session.must_change_password and not route.startswith(SESSION):
            raise Forbidden("Change your password first.", code="password_change_required")
        admin = session.admin
    state, roles = connection.scope["state"], roles_of(method, route)
    state["admin"] = admin
    tenant = connection.path_params.get("tenant")
    if tenant is None:
        on_its_own = admin.is_operator and admin.only is None
        if roles != EVERYONE and not (on_its_own and Role.OPERATOR in roles):
            raise Forbidden("Only operators of the platform may do this.")
        return
    if not isinstance(tenant, UUID):
        raise Unauthenticated
    role = await services.members.role_in(admin, TenantId(tenant))
    if role is None:
        raise no_such_tenant()
    principal = await services.tenants.principal_for(admin, tenant, SCOPES[role])
    if role not in roles:
        raise Forbidden(f"The role '{role}' may not do this.")
    state["role"], state["principal"] = role, principal


async def _require_staying(connection: Connection, handler: BaseRouteHandler, method: str) -> None:
    """Raises `Conflict` for a change of a tenant that is leaving or gone."""
    tenant = connection.path_params.get("tenant")
    if isinstance(tenant, UUID) and method not in _SAFE_METHODS and not handler.opt.get(WHILE_LEAVING):
        await services_of(connection.scope).tenants.require_active(tenant)
