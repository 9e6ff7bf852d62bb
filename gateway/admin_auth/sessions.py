"""Sessions of accounts in browsers: an opaque cookie whose digest names the session in Redis, and a CSRF
token that is made of the cookie, so that Redis holds neither.

Each session names its account's generation. Logging out everywhere begins the next one, in one write, and
whatever is of an earlier one is over.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence
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


class Given(msgspec.Struct, frozen=True):
    """What a provider's groups allow in this session. `roles`: by tenant."""

    provider: str
    is_operator: bool = False
    roles: dict[UUID, str] = {}


class Kept(msgspec.Struct, frozen=True):
    """What Redis holds."""

    admin: UUID
    ends_at: float  # Unix time
    password: str | None = None  # fingerprint of what was logged in with; None = it was another way
    csrf: str = ""  # only of sessions from before it was made of the cookie
    generation: int = 0
    given: Given | None = None  # None = logged in with a password


@dataclass(frozen=True, slots=True)
class Session:
    admin: Admin
    csrf: str
    ends_at: float  # Unix time
    provider: str | None = None  # None = logged in with a password
    must_change_password: bool = False

    def require_csrf(self, given: str | None) -> None:
        """Raises `Forbidden` unless the request carries the session's token: another site can't read it."""
        if given is None or not hmac.compare_digest(given.encode(), self.csrf.encode()):
            raise Forbidden("The header 'x-csrf-token' is missing or wrong.", code="csrf_failed")


class SessionStore:
    """`idle_s`: a session without a request so long is over; `life_s`: any is."""

    def __init__(self, redis: Redis, idle_s: float = IDLE_S, life_s: float = LIFE_S) -> None:
        self._redis = redis
        self._idle_ms = int(idle_s * 1000)
        self.life_s = life_s

    async def open(
        self, admin: UUID, password_hash: str | None, given: Given | None = None
    ) -> tuple[str, Kept]:
        """A new session: the cookie's value, and what is kept, with its CSRF token. `password_hash` None: no
        password opened it, so none that is changed ends it."""
        cookie = secrets.token_urlsafe(32)
        password = None if password_hash is None else fingerprint(password_hash)
        with redis_errors():
            # It has to outlive every session that names it.
            await self._redis.pexpire(_generation(admin), int(self.life_s * 1000) + 3_600_000)
            generation = int(await self._redis.get(_generation(admin)) or 0)
            kept = Kept(admin, time.time() + self.life_s, password, "", generation, given)
            await self._redis.set(_key(cookie), msgspec.json.encode(kept), px=self._left_ms(kept))
        return cookie, _with_csrf(kept, cookie)

    async def find(self, cookie: str, *, touch: bool = True) -> Kept | None:
        """A live session, which is thereby kept alive unless `touch` says otherwise."""
        with redis_errors():
            raw = await self._redis.get(_key(cookie))
            if raw is None:
                return None
            kept = msgspec.json.decode(raw, type=Kept)
            generation = int(await self._redis.get(_generation(kept.admin)) or 0)
            if self._left_ms(kept) <= 0 or kept.generation != generation:
                return None
            if touch:
                await self._redis.pexpire(_key(cookie), self._left_ms(kept))
        return _with_csrf(kept, cookie)

    async def alive(self, cookies: Sequence[str]) -> frozenset[str]:
        """Those whose sessions go on, by two look-ups however many there are; touches none."""
        with redis_errors():
            raws = await self._redis.mget([_key(cookie) for cookie in cookies])
            found = {
                cookie: msgspec.json.decode(raw, type=Kept)
                for cookie, raw in zip(cookies, raws, strict=True)
                if raw is not None
            }
            admins = list({kept.admin for kept in found.values()})
            read = await self._redis.mget([_generation(admin) for admin in admins]) if admins else []
        generations = {admin: int(number or 0) for admin, number in zip(admins, read, strict=True)}
        return frozenset(
            cookie
            for cookie, kept in found.items()
            if self._left_ms(kept) > 0 and kept.generation == generations[kept.admin]
        )

    async def close(self, cookie: str) -> None:
        with redis_errors():
            await self._redis.delete(_key(cookie))

    async def close_all(self, admin: UUID) -> None:
        """Those of the account, wherever they are."""
        with redis_errors():
            await self._redis.incr(_generation(admin))
            await self._redis.pexpire(_generation(admin), int(self.life_s * 1000) + 3_600_000)

    def _left_ms(self, kept: Kept) -> int:
        return min(self._idle_ms, int((kept.ends_at - time.time()) * 1000))


def fingerprint(password_hash: str) -> str:
    """Tells one password's session from the next one's; of the salted hash, so that it tells nothing else."""
    return hashlib.sha256(password_hash.encode()).hexdigest()[:16]


def _key(cookie: str) -> RedisKey:
    return _KEYS.key(hashlib.sha256(cookie.encode()).hexdigest())


def _generation(admin: UUID) -> RedisKey:
    return _KEYS.key("generation", str(admin))


def _with_csrf(kept: Kept, cookie: str) -> Kept:
    """Nobody who sees the token, which pages may read, learns the cookie, which they may not."""
    made = hmac.new(cookie.encode(), b"motet csrf", hashlib.sha256).hexdigest()
    return msgspec.structs.replace(kept, csrf=kept.csrf or made)
