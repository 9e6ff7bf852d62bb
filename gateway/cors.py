"""Whether scripts of other origins may read answers under `/v1`. Off unless the operator names origins.

A key in the Authorization header is what lets a request in, and a page has to hold it to send it; no cookie
counts under `/v1`, and credentials are allowed to no origin. Routes for operators, where cookies do count,
never say yes to another origin.
"""

from __future__ import annotations

import re
from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

ROUTES: Final = "/v1/"
MAX_ORIGINS: Final = 64
PREFLIGHT_S: Final = 7_200
"""How long a browser may keep the answer to its preflight; none keeps it longer."""

METHODS: Final = "GET, POST, PUT, PATCH, DELETE"
REQUEST_HEADERS: Final = (
    "authorization, content-type, idempotency-key, x-request-id, x-motet-deadline-ms, "
    "tus-resumable, upload-length, upload-metadata, upload-offset, upload-checksum, x-http-method-override, "
    "if-match, if-none-match, prefer"
)
ANSWER_HEADERS: Final = (
    "retry-after, retry-after-ms, x-request-id, openai-processing-ms, idempotent-replayed, "
    "x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, "
    "location, tus-resumable, tus-version, upload-offset, upload-length, upload-metadata, upload-expires, "
    "x-motet-adapter, x-motet-version, x-motet-digest, x-motet-default-max-tokens, x-motet-cache, etag"
)
"""What a script sees beside the body."""

_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")


def origins_of(setting: str) -> frozenset[str]:
    """Of `https://app.example.com,http://localhost:3000`, as browsers write an origin. Raises ValueError: no
    pattern, no path, and no `*`."""
    named = [part.strip() for part in setting.split(",") if part.strip()]
    for origin in named:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"'{origin}' is no origin, such as https://app.example.com")
    if len(named) > MAX_ORIGINS:
        raise ValueError(f"at most {MAX_ORIGINS} origins can be named")
    return frozenset(named)


class Cors:
    """Stands around the application; made only when there are origins."""

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        self._app = app
        self._origins = {origin.encode() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not scope["path"].startswith(ROUTES):
            await self._app(scope, receive, send)
            return
        asked = dict(scope["headers"])
        origin = asked.get(b"origin")
        allowed = origin if origin in self._origins else None
        if scope["method"] == "OPTIONS" and origin and b"access-control-request-method" in asked:
            await _preflight(allowed, asked.get(b"access-control-request-headers", b""), send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_answer_headers(allowed)]
            await send(message)

        await self._app(scope, receive, sending)


def _answer_headers(allowed: bytes | None) -> list[tuple[bytes, bytes]]:
    vary = (b"vary", b"origin")  # also for who is not allowed: an answer must not be kept for another origin
    if allowed is None:
        return [vary]
    return [
        vary,
        (b"access-control-allow-origin", allowed),
        (b"access-control-expose-headers", ANSWER_HEADERS.encode()),
    ]


async def _preflight(allowed: bytes | None, wanted: bytes, send: Send) -> None:
    """A browser that is told nothing sends nothing."""
    headers = [(b"vary", b"origin, access-control-request-method, access-control-request-headers")]
    if allowed is not None:
        headers += [
            (b"access-control-allow-origin", allowed),
            (b"access-control-allow-methods", METHODS.encode()),
            (b"access-control-allow-headers", ", ".join([REQUEST_HEADERS, *_of_sdk(wanted)]).encode()),
            (b"access-control-max-age", str(PREFLIGHT_S).encode()),
        ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _of_sdk(wanted: bytes) -> list[str]:
    """OpenAI's SDKs tell about themselves in headers of this prefix, more in each version."""
    names = [name.strip().lower() for name in wanted.decode("latin-1").split(",")]
    return [name for name in names[:64] if re.fullmatch(r"x-stainless-[a-z-]{1,40}", name)]
