"""An OpenID provider on a port of this machine, in a thread: as strict as a good one (client secret, PKCE
with S256, exact redirect URI, codes good once), and dishonest when a test says so (`misdeed`)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html
import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

from deploy.local.services import free_port

CLIENT = "motet"
CODE_S = 60


@dataclass
class _Code:
    person: str
    redirect_uri: str
    nonce: str
    challenge: str
    expires_at: float


@dataclass
class OidcServer:
    """`people`: claims by subject. `misdeed`: one of those in `_misbehave`, or "" for none."""

    people: dict[str, dict[str, Any]]
    redirect_uris: set[str] = field(default_factory=set)
    misdeed: str = ""
    port: int = field(default_factory=free_port)
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(16))

    def __post_init__(self) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
        self._codes: dict[str, _Code] = {}
        self._tokens: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="oidc-provider", daemon=True)

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def settings(self, **more: Any) -> dict[str, Any]:
        """An entry of MOTET_OIDC_PROVIDERS."""
        return {
            "id": "house",
            "name": "House",
            "issuer": self.issuer,
            "client_id": CLIENT,
            "client_secret": self.secret,
            **more,
        }

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._metadata)
        app.router.add_get("/jwks", self._jwks)
        app.router.add_get("/favicon.ico", self._no_icon)
        app.router.add_get("/authorize", self._ask)
        app.router.add_post("/authorize", self._grant)
        app.router.add_post("/token", self._token)
        app.router.add_get("/userinfo", self._userinfo)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def _metadata(self, _: web.Request) -> web.Response:
        issuer = "https://elsewhere.example" if self.misdeed == "other_metadata" else self.issuer
        paths = {"authorization": "authorize", "token": "token", "userinfo": "userinfo"}
        endpoints = {f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in paths.items()}
        return web.json_response({"issuer": issuer, "jwks_uri": f"{self.issuer}/jwks", **endpoints})

    async def _no_icon(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _jwks(self, _: web.Request) -> web.Response:
        return web.json_response({"keys": [self._key.as_dict(private=False)]})

    async def _ask(self, request: web.Request) -> web.Response:
        if request.query.get("redirect_uri") not in self.redirect_uris:
            return web.Response(status=400, text="unknown redirect_uri")
        names = [html.escape(sub) for sub in self.people]
        buttons = "".join(f'<button name="sub" value="{name}">{name}</button>' for name in names)
        page = f'<!doctype html><title>House</title><form method="post">{buttons}</form>'
        return web.Response(text=page, content_type="text/html")

    async def _grant(self, request: web.Request) -> web.Response:
        query, form = request.query, await request.post()
        if query.get("redirect_uri") not in self.redirect_uris or query.get("client_id") != CLIENT:
            return web.Response(status=400, text="unknown client")
        if query.get("code_challenge_method") != "S256" or "openid" not in query.get("scope", ""):
            return web.Response(status=400, text="no PKCE, or no openid")
        code = secrets.token_urlsafe(16)
        self._codes[code] = _Code(
            str(form["sub"]),
            query["redirect_uri"],
            query.get("nonce", ""),
            query["code_challenge"],
            time.time() + CODE_S,
        )
        back = urlencode({"code": code, "state": query["state"], "iss": self.issuer})
        raise web.HTTPFound(f"{query['redirect_uri']}?{back}")

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        code = self._codes.pop(str(form.get("code")), None)
        basic = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {basic}":
            return web.json_response({"error": "invalid_client"}, status=401)
        verifier = str(form.get("code_verifier", ""))
        made = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        if code is None or code.expires_at < time.time() or made != code.challenge:
            return web.json_response({"error": "invalid_grant"}, status=400)
        if form.get("redirect_uri") != code.redirect_uri:
            return web.json_response({"error": "invalid_grant"}, status=400)
        access = secrets.token_urlsafe(16)
        self._tokens[access] = code.person
        token = {"access_token": access, "token_type": "Bearer", "expires_in": 300}
        return web.json_response({**token, "id_token": self._id_token(code)})

    def _id_token(self, code: _Code) -> str:
        now = int(time.time())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": code.person,
            "iat": now,
            "exp": now + 300,
            "nonce": code.nonce,
            "email": self.people[code.person].get("email"),
            "email_verified": self.people[code.person].get("email_verified", True),
        }
        header = {"alg": "RS256", "kid": "one"}
        key = self._key
        match self.misdeed:
            case "nonce" | "aud" | "iss" | "sub":
                claims[self.misdeed] = "another"
            case "expired":
                claims |= {"iat": now - 7200, "exp": now - 3600}
            case "key":
                key = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
            case "unsigned":
                return _unsigned(claims)
        return jwt.encode(header, claims, key)

    async def _userinfo(self, request: web.Request) -> web.Response:
        person = self._tokens.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if person is None:
            return web.Response(status=401)
        sub = "somebody-else" if self.misdeed == "userinfo" else person
        return web.json_response({**self.people[person], "sub": sub})


def _unsigned(claims: dict[str, Any]) -> str:
    """`alg: none`."""
    import json

    def part(data: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none'})}.{part(claims)}."
