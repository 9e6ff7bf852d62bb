"""Log-ins under way at a provider: each one for itself, so that two tabs don't get into each other's way.

A flow is bound to the browser that began it by a cookie of its own. It is taken once, whatever comes of it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

import msgspec
from redis.asyncio import Redis

from gateway.oidc.provider import Asked
from gateway.redis import PlatformKeys, RedisKey, redis_errors

FLOW_S: Final = 600
"""How long somebody may take at the provider."""
COOKIE: Final = "motet_flow_"
_KEYS = PlatformKeys("oidc-flow")


class Flow(msgspec.Struct, frozen=True):
    provider: str
    nonce: str
    verifier: str
    browser: str  # SHA-256 of the cookie's value
    return_to: str


class Begun(msgspec.Struct, frozen=True):
    """`cookie`: name and value."""

    asked: Asked
    cookie: tuple[str, str]


class Flows:
    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def begin(self, provider: str, return_to: str) -> Begun:
        asked = Asked(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(48))
        browser = secrets.token_urlsafe(32)
        flow = Flow(provider, asked.nonce, asked.verifier, _digest(browser), return_to)
        with redis_errors():
            await self._redis.set(_key(asked.state), msgspec.json.encode(flow), ex=FLOW_S)
        return Begun(asked, (cookie_name(asked.state), browser))

    async def take(self, provider: str, state: str, browser: str) -> Flow | None:
        """The flow, which is over with this; None for one that is unknown, another provider's or another
        browser's."""
        with redis_errors():
            raw = await self._redis.getdel(_key(state))
        if raw is None:
            return None
        flow = msgspec.json.decode(raw, type=Flow)
        fits = flow.provider == provider and hmac.compare_digest(flow.browser, _digest(browser))
        return flow if fits else None


def cookie_name(state: str) -> str:
    """Of each flow its own; of the state only what tells it from others."""
    return COOKIE + _digest(state)[:16]


def _key(state: str) -> RedisKey:
    return _KEYS.key(_digest(state))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
