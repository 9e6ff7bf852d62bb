"""HTTP of an operator's session in a browser."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter

from gateway.access import PUBLIC, UNTOUCHED
from gateway.admin_auth.cookies import session_cookie
from gateway.admin_auth.schemas import LogIn, PasswordChange, SessionOut
from gateway.audit.service import Actor
from gateway.client_address import client_address
from gateway.errors import BadRequest
from gateway.services import Services

Touch = Annotated[
    bool, QueryParameter(description="False: to look whether it still lives does not keep it alive.")
]


@post("/api/v1/session", opt={PUBLIC: True}, status_code=201, summary="Log in as an operator")
async def log_in(
    services: NamedDependency[Services], request: Request[Any, Any, Any], data: JSONBody[LogIn]
) -> Response[SessionOut]:
    if request.content_type[0] != "application/json":  # which no page of another site can send without asking
        raise BadRequest("Send JSON, as application/json.", param="content-type", code="invalid_value")
    address = client_address(request.scope, services.proxies)
    cookie, session = await services.admins.log_in(data.email, data.password, address)
    return Response(SessionOut.of(session), cookies=[session_cookie(services.settings, cookie)])


@get("/api/v1/session", opt={UNTOUCHED: True}, summary="The session of this browser, with its CSRF token")
async def get_session(
    services: NamedDependency[Services], request: Request[Any, Any, Any], touch: Touch = True
) -> SessionOut:
    return SessionOut.of(await services.admins.by_session(request.cookies, touch=touch))


@put("/api/v1/session/password", summary="Change one's own password; all sessions end, a new one begins")
async def change_password(
    services: NamedDependency[Services],
    actor: NamedDependency[Actor],
    request: Request[Any, Any, Any],
    data: JSONBody[PasswordChange],
) -> Response[SessionOut]:
    session = await services.admins.by_session(request.cookies)
    address = client_address(request.scope, services.proxies)
    cookie, opened = await services.admins.change_password(actor, session, data.current, data.new, address)
    return Response(SessionOut.of(opened), cookies=[session_cookie(services.settings, cookie)])


@delete("/api/v1/session", status_code=204, summary="Log out")
async def log_out(services: NamedDependency[Services], request: Request[Any, Any, Any]) -> Response[None]:
    await services.admins.log_out(request.cookies)
    return Response(None, status_code=204, cookies=[session_cookie(services.settings, "")])


@delete("/api/v1/sessions", status_code=204, summary="Log out everywhere, in other browsers too")
async def log_out_everywhere(
    services: NamedDependency[Services], request: Request[Any, Any, Any]
) -> Response[None]:
    await services.admins.log_out_everywhere(await services.admins.by_session(request.cookies))
    return Response(None, status_code=204, cookies=[session_cookie(services.settings, "")])


handlers = [log_in, get_session, change_password, log_out, log_out_everywhere]
