"""HTTP of an operator's session in a browser."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, delete, get, post
from litestar.datastructures import Cookie
from litestar.di import NamedDependency
from litestar.params import JSONBody

from gateway.access import PUBLIC
from gateway.admin_auth.schemas import LogIn, SessionOut
from gateway.admin_auth.sessions import COOKIE, LIFE_S
from gateway.client_address import client_address
from gateway.errors import BadRequest
from gateway.services import Services


@post("/api/v1/session", opt={PUBLIC: True}, status_code=201, summary="Log in as an operator")
async def log_in(
    services: NamedDependency[Services], request: Request[Any, Any, Any], data: JSONBody[LogIn]
) -> Response[SessionOut]:
    if request.content_type[0] != "application/json":  # which no page of another site can send without asking
        raise BadRequest("Send JSON, as application/json.", param="content-type", code="invalid_value")
    address = client_address(request.scope, services.proxies)
    cookie, session = await services.admins.log_in(data.email, data.password, address)
    return Response(SessionOut.of(session), cookies=[_cookie(services, cookie, LIFE_S)])


@get("/api/v1/session", summary="The session of this browser, with its CSRF token")
async def get_session(services: NamedDependency[Services], request: Request[Any, Any, Any]) -> SessionOut:
    return SessionOut.of(await services.admins.by_session(request.cookies))


@delete("/api/v1/session", status_code=204, summary="Log out")
async def log_out(services: NamedDependency[Services], request: Request[Any, Any, Any]) -> Response[None]:
    await services.admins.log_out(request.cookies)
    return Response(None, status_code=204, cookies=[_cookie(services, "", 0)])


def _cookie(services: Services, value: str, max_age_s: int) -> Cookie:
    return Cookie(
        key=COOKIE,
        value=value,
        max_age=max_age_s,
        path="/",
        httponly=True,
        samesite="strict",
        secure=services.settings.public_url.startswith("https://"),
    )


handlers = [log_in, get_session, log_out]
