"""HTTP of logging in at a provider: a browser's way there and back. Errors come back as an address of the UI,
for it is a person who waits."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import quote

from litestar import Request, Response, get
from litestar.datastructures import Cookie, State
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter

from gateway.access import PUBLIC
from gateway.admin_auth.cookies import session_cookie
from gateway.client_address import client_address
from gateway.errors import RateLimited, Unavailable
from gateway.oidc.flows import FLOW_S, cookie_name
from gateway.oidc.schemas import ProviderOut, ProvidersOut
from gateway.oidc.service import MAX_RETURN, Refused
from gateway.public_url import PublicUrl
from gateway.services import Services

OIDC = "/api/v1/session/oidc"
_INSIDE = re.compile(r"/(?!/)[\x21-\x5b\x5d-\x7e]*")  # a path of the UI: no host, no backslash, no controls

AnyRequest = Request[Any, Any, State]
ReturnTo = Annotated[
    str, QueryParameter(max_length=MAX_RETURN, description="Address in the admin UI to come back to.")
]
Text = Annotated[str, QueryParameter(max_length=4_096)]


@get("/api/v1/session/providers", opt={PUBLIC: True}, summary="Where one can log in")
async def list_providers(services: NamedDependency[Services]) -> ProvidersOut:
    offered = services.log_ins.offered
    return ProvidersOut([ProviderOut(each.id, each.name, f"{OIDC}/{each.id}") for each in offered])


@get(f"{OIDC}/{{provider:str}}", opt={PUBLIC: True}, status_code=303, summary="Log in at a provider")
async def begin(
    request: AnyRequest,
    services: NamedDependency[Services],
    provider: FromPath[str],
    return_to: ReturnTo = "/",
) -> Response[None]:
    public = PublicUrl.parse(services.settings.public_url)
    inside = return_to if _INSIDE.fullmatch(return_to) else "/"
    address = client_address(request.scope, services.proxies)
    try:
        url, begun = await services.log_ins.begin(provider, inside, address)
    except (Unavailable, RateLimited) as error:
        return _back(public, _failed(error.code or "unavailable"))
    name, value = begun.cookie
    return Response(
        None,
        status_code=303,
        headers={"location": url},
        cookies=[_flow_cookie(public, provider, name, value, FLOW_S)],
    )


@get(
    f"{OIDC}/{{provider:str}}/callback",
    opt={PUBLIC: True},
    status_code=303,
    summary="Where a provider sends the browser back to",
)
async def finish(
    request: AnyRequest,
    services: NamedDependency[Services],
    provider: FromPath[str],
    flow: Annotated[str, QueryParameter(name="state", max_length=128)] = "",
    code: Text = "",
) -> Response[None]:
    public = PublicUrl.parse(services.settings.public_url)
    name = cookie_name(flow)
    cookies = [_flow_cookie(public, provider, name, "", 0)]
    try:
        entered = await services.log_ins.finish(provider, flow, request.cookies.get(name, ""), code)
    except Refused as refused:
        return _back(public, _failed(refused.reason), cookies)
    except Unavailable as error:
        return _back(public, _failed(error.code or "unavailable"), cookies)
    cookies.append(session_cookie(services.settings, entered.cookie))
    return _back(public, entered.return_to, cookies)


def _back(public: PublicUrl, path: str, cookies: list[Cookie] | None = None) -> Response[None]:
    location = public.path("/admin" + path)
    return Response(None, status_code=303, headers={"location": location}, cookies=cookies or [])


def _failed(reason: str) -> str:
    return f"/log-in?error={quote(reason)}"


def _flow_cookie(public: PublicUrl, provider: str, name: str, value: str, max_age_s: int) -> Cookie:
    """Lax: it has to come along when the provider sends the browser back."""
    return Cookie(
        key=name,
        value=value,
        max_age=max_age_s,
        path=public.path(f"{OIDC}/{provider}/callback"),
        httponly=True,
        samesite="lax",
        secure=public.is_secure,
    )


handlers = [list_providers, begin, finish]
