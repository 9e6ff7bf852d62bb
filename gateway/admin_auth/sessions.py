"""Sessions of operators in browsers: an opaque cookie whose digest names the session in Redis, and a CSRF
token that is made of the cookie, so that Redis holds neither."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from uuid import UUID

import msgspec
from redis.asyncio import Redis

from gateway.errors import Forbidden
from gateway.principal import Admin
from gateway.redis import PlatformKeys, RedisKey, redis_errors

COOKIE = "motet_session"
IDLE_S = 8 * 3600  # without a request
LIFE_S = 24 * 3600  # whatever happens
_KEYS = PlatformKeys("session")


class Kept(msgspec.Struct, frozen=True):
    """What Redis holds."""

    admin: UUID
    ends_at: float  # Unix time
    password: str | None = None  # fingerprint of what was logged in with; None = from before there was one
    csrf: str = ""  # only of sessions from before it was made of the cookie


@dataclass(frozen=True, slots=True)
class Session:
    admin: Admin
    csrf: str

    def require_csrf(self, given: str | None) -> None:
        """Raises `Forbidden` unless the request carries the session's token: another site can't read it."""
        if given is None or not hmac.compare_digest(given.encode(), self.csrf.encode()):
            raise Forbidden("The header 'x-csrf-token' is missing or wrong.", code="csrf_failed")


class SessionStore:
    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def open(self, admin: UUID, password_hash: str) -> tuple[str, Kept]:
        """A new session: the cookie's value, and what is kept, with its CSRF token."""
        cookie = secrets.token_urlsafe(32)
        kept = Kept(admin, time.time() + LIFE_S, fingerprint(password_hash))
        with redis_errors():
            await self._redis.set(_key(cookie), msgspec.json.encode(kept), ex=IDLE_S)
        return cookie, _with_csrf(kept, cookie)

    async def find(self, cookie: str) -> Kept | None:
        """A live session, which is thereby kept alive."""
        with redis_errors():
            raw = await self._redis.get(_key(cookie))
            if raw is None:
                return None
            kept = msgspec.json.decode(raw, type=Kept)
            left_s = kept.ends_at - time.time()
            if left_s <= 0:
                return None
            await self._redis.expire(_key(cookie), max(1, min(IDLE_S, int(left_s))))
        return _with_csrf(kept, cookie)

    async def close(self, cookie: str) -> None:
        with redis_errors():
            await self._redis.delete(_key(cookie))


def fingerprint(password_hash: str) -> str:
    """Tells one password's session from the next one's; of the salted hash, so that it tells nothing else."""
    return hashlib.sha256(password_hash.encode()).hexdigest()[:16]


def _key(cookie: str) -> RedisKey:
    return _KEYS.key(hashlib.sha256(cookie.encode()).hexdigest())


def _with_csrf(kept: Kept, cookie: str) -> Kept:
    """Nobody who sees the token, which pages may read, learns the cookie, which they may not."""
    made = hmac.new(cookie.encode(), b"motet csrf", hashlib.sha256).hexdigest()
    return msgspec.structs.replace(kept, csrf=kept.csrf or made)
