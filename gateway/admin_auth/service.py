"""Proves accounts, of operators and members: by a cookie in browsers, by a bearer token in scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

import structlog
from redis.asyncio import Redis

from gateway.admin_auth import repository
from gateway.admin_auth.passwords import NOBODY, is_password
from gateway.admin_auth.sessions import COOKIE, Session, SessionStore, fingerprint
from gateway.client_address import Address
from gateway.credentials import Peppers, SecretFormat
from gateway.db import Database
from gateway.errors import RateLimited, Unauthenticated
from gateway.models import Admin as AdminRow
from gateway.models import Member
from gateway.principal import Admin, Membership, Role, TenantId
from gateway.redis import PlatformKeys, Script

log = structlog.get_logger(__name__)

ADMIN_TOKEN = SecretFormat("mta")
WINDOW_MS = 5 * 60 * 1000
ATTEMPTS_PAIR = (
    10  # of one email from one address in a window: an attacker elsewhere can't lock the owner out
)
ATTEMPTS_ADDRESS = 30
ATTEMPTS_EMAIL = 300
HOST_PREFIX = 64  # prefix length of the network that one host of IPv6 has
_KEYS = PlatformKeys("log-in")
_LOG_IN = Script.load(Path(__file__).parent / "log_in.lua")


class AdminAuthenticator:
    def __init__(self, db: Database, redis: Redis, peppers: Peppers) -> None:
        self._db = db
        self._redis = redis
        self._peppers = peppers
        self._sessions = SessionStore(redis)

    async def log_in(self, email: str, password: str, address: Address | None) -> tuple[str, Session]:
        """The cookie's value and the session. Raises `RateLimited`, and `Unauthenticated` for whatever is
        wrong."""
        email = email.strip().lower()
        await self._count_attempt(email, _source(address))
        async with self._db.system_reader() as session:
            admin = await repository.find_by_email(session, email)
        kept = admin.password_hash if admin is not None else ""  # a member's account may have none
        if not await is_password(password, kept or NOBODY) or admin is None or not kept:
            log.info("admin_log_in_refused")
            raise Unauthenticated("The email or the password is wrong.", code="invalid_credentials")
        cookie, opened = await self._sessions.open(admin.id, kept)
        return cookie, Session(_admin(admin), opened.csrf)

    async def by_session(self, cookies: Mapping[str, str]) -> Session:
        """The session that a browser's cookie names. Raises `Unauthenticated`."""
        cookie = cookies.get(COOKIE)
        kept = await self._sessions.find(cookie) if cookie else None
        if kept is None:
            raise Unauthenticated("Log in, or send an admin token.", code="not_logged_in")
        async with self._db.system_reader() as session:
            admin = await repository.find(session, kept.admin)
        if admin is None or kept.password not in (None, fingerprint(admin.password_hash)):
            raise Unauthenticated("Log in, or send an admin token.", code="not_logged_in")
        return Session(_admin(admin), kept.csrf)

    async def by_token(self, authorization: str) -> Admin:
        """Whom an admin token proves. Raises `Unauthenticated`."""
        secret = ADMIN_TOKEN.from_header(authorization)
        if secret is None:
            raise Unauthenticated("The admin token is wrong.", code="invalid_admin_token")
        async with self._db.system_reader() as session:
            found = await repository.find_token(session, secret.public_id)
        if found is None or not self._peppers.proves(
            secret, found.token.secret_hmac, found.token.pepper_version
        ):
            raise Unauthenticated("The admin token is wrong.", code="invalid_admin_token")
        if found.token.pepper_version != self._peppers.current_version:
            sealed, version = self._peppers.seal(secret), self._peppers.current_version
            async with self._db.system_session() as writing:
                await repository.reseal(writing, found.token.id, sealed, version)
        return _admin(found.admin, found.member, found.token.token_id)

    async def log_out(self, cookies: Mapping[str, str]) -> None:
        if cookie := cookies.get(COOKIE):
            await self._sessions.close(cookie)

    async def _count_attempt(self, email: str, source: str) -> None:
        who = hashlib.sha256(email.encode()).hexdigest()
        keys = [_KEYS.key("pair", source, who), _KEYS.key("address", source), _KEYS.key("email", who)]
        allowed, wait_ms = await _LOG_IN(
            self._redis, keys, [ATTEMPTS_PAIR, ATTEMPTS_ADDRESS, ATTEMPTS_EMAIL, WINDOW_MS]
        )
        if not allowed:
            raise RateLimited("Too many attempts to log in.", retry_after_s=int(wait_ms) / 1000)


def _source(address: Address | None) -> str:
    """Who is counted: an address, of IPv6 its network, for each host has all of that."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, HOST_PREFIX), strict=False).network_address)
    return str(address)


def _admin(row: AdminRow, member: Member | None = None, token: str | None = None) -> Admin:
    if member is None:
        return Admin(row.id, row.email, row.is_operator)
    only = Membership(TenantId(member.tenant_id), Role(member.role))
    return Admin(row.id, row.email, row.is_operator, only, token)
