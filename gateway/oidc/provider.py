"""Talks to one provider: its metadata and keys, the URL that people are sent to, and a code for claims."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import httpx2
import structlog
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from gateway.errors import Unavailable
from gateway.oidc.settings import MAX_GROUPS, OidcProvider

log = structlog.get_logger(__name__)

TIMEOUT_S: Final = 10.0
METADATA_S: Final = 3600.0
"""So long what a provider says of itself is believed; new keys are asked for sooner, when one is unknown."""
KEYS_AGAIN_S: Final = 60.0
LEEWAY_S: Final = 60
MAX_SUBJECT: Final = 255
"""Characters (OpenID Connect Core, section 2)."""
ALGORITHMS: Final = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Of ID tokens: signatures by a key of the provider's. Never `none`, nor a secret that we share."""


class Untrusted(Exception):
    """What came back is not the provider's word about this log-in."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What the provider says of a person. `email` "" = nothing that it calls verified."""

    subject: str
    email: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """What one log-in was begun with."""

    state: str
    nonce: str
    verifier: str  # PKCE (RFC 7636)


@dataclass(frozen=True, slots=True)
class _Known:
    metadata: dict[str, Any]
    keys: KeySet
    read_at: float


class Provider:
    def __init__(self, settings: OidcProvider, redirect_uri: str) -> None:
        self.settings = settings
        self._redirect_uri = redirect_uri
        self._known: _Known | None = None

    async def authorization_url(self, asked: Asked) -> str:
        """Raises `Unavailable`."""
        known = await self._metadata()
        async with self._client() as client:
            url, _ = client.create_authorization_url(
                known.metadata["authorization_endpoint"],
                state=asked.state,
                nonce=asked.nonce,
                code_verifier=asked.verifier,
            )
            return str(url)

    async def claims(self, code: str, asked: Asked) -> Claims:
        """Of who comes back with `code`. Raises `Untrusted`, and `Unavailable` when the provider is away."""
        known = await self._metadata()
        try:
            async with self._client() as client:
                token = await client.fetch_token(
                    known.metadata["token_endpoint"], code=code, code_verifier=asked.verifier
                )
                claims = await self._proved(str(token.get("id_token", "")), asked, token)
                more = await self._told(client, claims)
        except OAuthError as error:
            raise Untrusted(f"the provider took no code: {error.error}") from error
        except (httpx2.HTTPError, ValueError, KeyError) as error:
            raise _away(self.settings, error) from error
        return self._read({**more, **claims})

    async def _proved(self, id_token: str, asked: Asked, token: dict[str, Any]) -> dict[str, Any]:
        known = await self._metadata()
        try:
            decoded = jwt.decode(id_token, known.keys, algorithms=ALGORITHMS)
        except (JoseError, ValueError):
            known = await self._metadata(older_than_s=KEYS_AGAIN_S)  # keys may have been changed
            try:
                decoded = jwt.decode(id_token, known.keys, algorithms=ALGORITHMS)
            except (JoseError, ValueError) as error:
                raise Untrusted(f"the ID token is not signed by the provider: {error}") from error
        wanted: Any = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "value": self.settings.client_id},
        }
        said = {
            "nonce": asked.nonce,
            "client_id": self.settings.client_id,
            "access_token": token.get("access_token"),
        }
        claims = CodeIDToken(decoded.claims, decoded.header, wanted, said)
        try:
            claims.validate(leeway=LEEWAY_S)
        except JoseError as error:
            raise Untrusted(f"the ID token does not hold: {error}") from error
        return dict(claims)

    async def _told(self, client: Any, claims: dict[str, Any]) -> dict[str, Any]:
        """What the ID token leaves out, of the user info, where there is one."""
        known = await self._metadata()
        endpoint = known.metadata.get("userinfo_endpoint")
        wanted = ("email", "email_verified", self.settings.groups_claim)
        if endpoint is None or all(name in claims for name in wanted):
            return {}
        answer = await client.get(endpoint)
        if answer.status_code != 200:
            return {}
        told = answer.json()
        if not isinstance(told, dict) or told.get("sub") != claims["sub"]:
            raise Untrusted("the user info is about somebody else")
        return {name: told[name] for name in wanted if name in told}

    def _read(self, claims: dict[str, Any]) -> Claims:
        subject = str(claims["sub"])
        if len(subject) > MAX_SUBJECT:  # cut off, it could be another person's
            raise Untrusted("the subject is longer than one may be")
        groups = claims.get(self.settings.groups_claim, ())
        texts = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        email = claims.get("email") if claims.get("email_verified") is True else ""
        return Claims(
            subject=subject,
            email=str(email or "").strip().lower()[:254],
            groups=tuple(str(group) for group in texts[:MAX_GROUPS]),
        )

    async def _metadata(self, older_than_s: float = METADATA_S) -> _Known:
        now = time.monotonic()
        if self._known is not None and now - self._known.read_at < older_than_s:
            return self._known
        issuer = self.settings.issuer
        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT_S) as client:
                url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
                metadata = _checked((await client.get(url)).raise_for_status().json(), issuer)
                jwks = (await client.get(metadata["jwks_uri"])).raise_for_status().json()
                self._known = _Known(metadata, KeySet.import_key_set(jwks), now)
        except (httpx2.HTTPError, JoseError, ValueError, KeyError, TypeError) as error:
            raise _away(self.settings, error) from error
        return self._known

    def _client(self) -> AsyncOAuth2Client:
        return AsyncOAuth2Client(
            client_id=self.settings.client_id,
            client_secret=self.settings.client_secret.get_secret_value(),
            scope=self.settings.scopes,
            redirect_uri=self._redirect_uri,
            code_challenge_method="S256",
            timeout=TIMEOUT_S,
        )


def _checked(metadata: dict[str, Any], issuer: str) -> dict[str, Any]:
    """Raises ValueError and KeyError."""
    if metadata["issuer"] != issuer:
        raise ValueError(f"it calls itself {metadata['issuer']}")
    _ = metadata["authorization_endpoint"], metadata["token_endpoint"]
    return metadata


def _away(settings: OidcProvider, error: Exception) -> Unavailable:
    log.warning("oidc_provider_away", provider=settings.id, reason=str(error))
    return Unavailable(f"{settings.name} can't log anybody in now. Try again.", code="oidc_unavailable")
