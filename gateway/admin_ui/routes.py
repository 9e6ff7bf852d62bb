"""HTTP of the admin UI, by three rules: an asset is the file of that very name, kept for ever by browsers, or
404; whatever else a browser asks for under /admin/ is the one page, never kept; nothing outside /admin/ is
answered with a page."""

from __future__ import annotations

import re
from typing import Any, Final

from litestar import Request, Response, get
from litestar.datastructures import State
from litestar.params import FromPath

from gateway.access import PUBLIC
from gateway.admin_ui.build import Asset, UiBuild, new_nonce, policy
from gateway.errors import NotFound

PAGE_TYPE: Final = "text/html"  # Litestar names the charset of texts
IMMUTABLE: Final = "public, max-age=31536000, immutable"
NOT_BUILT: Final = b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Motet</title>
<h1>The admin UI is not built</h1>
<p>Run <code>make ui</code> where Motet was checked out, then start the gateway again.
All that it does is in the API too (<code>/openapi.json</code>), and in the <code>motet</code> command.</p>
</html>
"""
_ODD = re.compile(r"\.\.|[\x00-\x1f\x7f\\%]")  # in a path that was decoded: no link of the UI has them

AnyRequest = Request[Any, Any, State]


@get(
    "/admin/assets/{name:str}", opt={PUBLIC: True}, summary="A part of the admin UI", media_type="text/plain"
)
async def get_asset(request: AnyRequest, state: State, name: FromPath[str]) -> Response[bytes]:
    build: UiBuild = state.admin_ui
    asset = build.assets.get(name)
    if asset is None:
        raise NotFound("There is no such part of the admin UI.")
    return _asset(asset, request.headers.get("accept-encoding", ""))


@get(
    ["/admin", "/admin/{rest:path}"],
    opt={PUBLIC: True},
    summary="The admin UI, for browsers",
    media_type="text/html",
)
async def get_page(request: AnyRequest, state: State) -> Response[bytes]:
    raw = request.scope["raw_path"].partition(b"?")[0]
    if "text/html" not in request.headers.get("accept", ""):
        raise NotFound("There is nothing here.")
    if not raw.startswith(b"/admin") or _ODD.search(request.scope["path"]):
        raise NotFound("There is nothing here.")
    if raw == b"/admin":  # relative, so that it holds behind whatever prefix
        query = request.scope["query_string"].decode("latin-1")
        return Response(b"", status_code=308, headers={"location": "admin/" + ("?" + query if query else "")})
    build: UiBuild = state.admin_ui
    nonce = new_nonce()
    if build.page is None:
        return Response(NOT_BUILT, status_code=503, media_type=PAGE_TYPE)
    headers = {"content-security-policy": policy(nonce), "cache-control": "no-store"}
    return Response(build.fill(nonce), headers=headers, media_type=PAGE_TYPE)


def _asset(asset: Asset, accepted: str) -> Response[bytes]:
    headers = {"cache-control": IMMUTABLE, "vary": "accept-encoding"}
    if not asset.may_be_packed or not re.search(r"\bgzip\b(?!\s*;\s*q=0(?:\.0*)?(?:\s*,|\s*$))", accepted):
        return Response(asset.content, headers=headers, media_type=asset.media_type)
    headers["content-encoding"] = "gzip"
    return Response(asset.packed, headers=headers, media_type=asset.media_type)


handlers = [get_asset, get_page]
