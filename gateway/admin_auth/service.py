"""Proves accounts, of operators and members: by a cookie in browsers, by a bearer token in scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path
from uuid import UUID

import structlog
from redis.asyncio import Redis

from gateway.admin_auth import repository
from gateway.admin_auth.passwords import NOBODY, hash_password, is_password
from gateway.admin_auth.sessions import COOKIE, Given, Kept, Session, SessionStore, fingerprint
from gateway.audit.service import Actor, Change, record
from gateway.client_address import Address
from gateway.credentials import Peppers, SecretFormat
from gateway.db import Database
from gateway.errors import BadRequest, Conflict, RateLimited, Unauthenticated
from gateway.models import Admin as AdminRow
from gateway.models import Member
from gateway.principal import Admin, Membership, Role, TenantId
from gateway.redis import PlatformKeys, RedisKey, Script

log = structlog.get_logger(__name__)

ADMIN_TOKEN = SecretFormat("mta")
WINDOW_MS = 5 * 60 * 1000
ATTEMPTS_PAIR = (
    10  # of one email from one address in a window: an attacker elsewhere can't lock the owner out
)
ATTEMPTS_ADDRESS = 30
ATTEMPTS_EMAIL = 300
ATTEMPTS_PROVIDER = 60  # log-ins begun from one address
HOST_PREFIX = 64  # prefix length of the network that one host of IPv6 has
_KEYS = PlatformKeys("log-in")
_LOG_IN = Script.load(Path(__file__).parent / "log_in.lua")


class AdminAuthenticator:
    def __init__(
        self, db: Database, redis: Redis, peppers: Peppers, sessions: SessionStore | None = None
    ) -> None:
        self._db = db
        self._redis = redis
        self._peppers = peppers
        self._sessions = sessions or SessionStore(redis)

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
        return cookie, _session(admin, opened)

    async def open(self, account: UUID, given: Given) -> str:
        """For whom a provider vouches; the cookie's value."""
        cookie, _ = await self._sessions.open(account, None, given)
        return cookie

    async def by_session(self, cookies: Mapping[str, str], *, touch: bool = True) -> Session:
        """The session that a browser's cookie names; with `touch` it goes on for its idle time. Raises
        `Unauthenticated`."""
        cookie = cookies.get(COOKIE)
        kept = await self._sessions.find(cookie, touch=touch) if cookie else None
        if kept is None:
            raise Unauthenticated("Log in, or send an admin token.", code="not_logged_in")
        async with self._db.system_reader() as session:
            admin = await repository.find(session, kept.admin)
        if admin is None or kept.password not in (None, fingerprint(admin.password_hash)):
            raise Unauthenticated("Log in, or send an admin token.", code="not_logged_in")
        return _session(admin, kept)

    async def change_password(
        self, actor: Actor, session: Session, current: str, new: str, address: Address | None
    ) -> tuple[str, Session]:
        """Ends every session of the account, and opens one; counted like an attempt to log in. Raises
        `RateLimited`, `BadRequest`, and `Conflict` for an account that has no password."""
        await self._count_attempt(session.admin.email, _source(address))
        async with self._db.system_reader() as reading:
            admin = await repository.find(reading, session.admin.id)
        if admin is None or not admin.password_hash:
            raise Conflict("This account has no password.", code="no_password")
        if not await is_password(current, admin.password_hash):
            raise BadRequest("The current password is wrong.", param="current", code="invalid_credentials")
        if await is_password(new, admin.password_hash):
            raise BadRequest("The new password is the current one.", param="new", code="invalid_value")
        hashed = await hash_password(new)
        async with self._db.system_session() as writing:
            changed = await repository.change_password(writing, admin.id, admin.password_hash, hashed)
            if changed is None:
                raise Conflict("The password was changed at this moment by another request.")
            record(writing, actor, Change("admin.change_password", admin.email))
        await self._sessions.close_all(admin.id)
        cookie, opened = await self._sessions.open(changed.id, hashed)
        return cookie, _session(changed, opened)

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

    async def log_out_everywhere(self, session: Session) -> None:
        """All sessions of the account, also those of other browsers."""
        await self._sessions.close_all(session.admin.id)

    async def count_begun(self, address: Address | None) -> None:
        """Log-ins that are begun at a provider. Raises `RateLimited`."""
        await self._count([_KEYS.key("provider", _source(address))], [ATTEMPTS_PROVIDER])

    async def _count_attempt(self, email: str, source: str) -> None:
        who = hashlib.sha256(email.encode()).hexdigest()
        keys = [_KEYS.key("pair", source, who), _KEYS.key("address", source), _KEYS.key("email", who)]
        await self._count(keys, [ATTEMPTS_PAIR, ATTEMPTS_ADDRESS, ATTEMPTS_EMAIL])

    async def _count(self, keys: list[RedisKey], most: list[int]) -> None:
        allowed, wait_ms = await _LOG_IN(self._redis, keys, [*most, WINDOW_MS])
        if not allowed:
            raise RateLimited("Too many attempts to log in.", retry_after_s=int(wait_ms) / 1000)


def _source(address: Address | None) -> str:
    """Who is counted: an address, of IPv6 its network, for each host has all of that."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, HOST_PREFIX), strict=False).network_address)
    return str(address)


def _session(row: AdminRow, kept: Kept) -> Session:
    given = kept.given
    admin = _admin(row)
    if given is not None:
        granted = tuple(Membership(TenantId(tenant), Role(role)) for tenant, role in given.roles.items())
        admin = replace(admin, is_operator=given.is_operator, granted=granted)
    return Session(
        admin=admin,
        csrf=kept.csrf,
        ends_at=kept.ends_at,
        provider=None if given is None else given.provider,
        must_change_password=row.must_change_password and given is None,
    )


def _admin(row: AdminRow, member: Member | None = None, token: str | None = None) -> Admin:
    if member is None:
        return Admin(row.id, row.email, row.is_operator)
    only = Membership(TenantId(member.tenant_id), Role(member.role))
    return Admin(row.id, row.email, row.is_operator, only, token)
