"""The cookie that names a session."""

from __future__ import annotations

from litestar.datastructures import Cookie

from gateway.admin_auth.sessions import COOKIE
from gateway.config import Settings
from gateway.public_url import PublicUrl


def session_cookie(settings: Settings, value: str) -> Cookie:
    """`value` "": it ends. Of the whole origin, whatever prefix a proxy adds."""
    return Cookie(
        key=COOKIE,
        value=value,
        max_age=int(settings.session_life_s) if value else 0,
        path="/",
        httponly=True,
        samesite="strict",
        secure=PublicUrl.parse(settings.public_url).is_secure,
    )
