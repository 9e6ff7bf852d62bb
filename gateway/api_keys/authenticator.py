"""Proves API keys: a header in, a `Principal` out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter

from gateway.api_keys import repository
from gateway.api_keys.cache import TimedCache
from gateway.caches.policy import cache_policy
from gateway.credentials import Peppers, Secret, SecretFormat
from gateway.db import Database
from gateway.errors import ApiError, Forbidden, Unauthenticated, Unavailable
from gateway.limits.columns import budget_of, limits_of
from gateway.limits.repository import budgets_of
from gateway.models import ApiKey, BudgetRow, Tenant, TenantStatus
from gateway.principal import Principal, Scope, TenantId
from gateway.tenants.epochs import Epochs

log = structlog.get_logger(__name__)

API_KEY = SecretFormat("mt")
REFUSED_ENTRIES = 2_000
REFUSED_S = 2.0
MAX_TOUCHED = 10_000

LOOKUPS = Counter("motet_api_key_lookups", "API keys looked at, by what came of it.", ["outcome"])


@dataclass(frozen=True, slots=True)
class _Proved:
    principal: Principal
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class CacheLimits:
    entries: int = 10_000
    age_s: float = (
        10.0  # a change of the key is seen after this long at the latest; the epoch makes it faster
    )


class Authenticator:
    """One per worker. A cache miss costs one query; malformed keys cost nothing."""

    def __init__(
        self, db: Database, peppers: Peppers, epochs: Epochs, limits: CacheLimits | None = None
    ) -> None:
        limits = limits or CacheLimits()
        self._db = db
        self._peppers = peppers
        self._epochs = epochs
        self._proved: TimedCache[_Proved] = TimedCache(limits.entries, limits.age_s)
        self._refused: TimedCache[type[ApiError]] = TimedCache(REFUSED_ENTRIES, min(REFUSED_S, limits.age_s))
        self._used: dict[str, datetime] = {}

    async def principal(self, authorization: str | None) -> Principal:
        """Whom an `Authorization` header proves.

        Raises `Unauthenticated` (no key, unknown, revoked, expired: all the same answer), `Forbidden` for a
        suspended tenant, and `Unavailable` when the database can't say.
        """
        if not authorization:
            raise Unauthenticated("You didn't provide an API key. Send it as 'Authorization: Bearer mt_…'.")
        secret = API_KEY.from_header(authorization)
        if secret is None:
            LOOKUPS.labels("malformed").inc()
            raise Unauthenticated
        proved = self._proved.get(secret.digest)
        if proved is None:
            proved = await self._prove(secret)
        else:
            LOOKUPS.labels("cached").inc()
        now = datetime.now(UTC)
        if proved.expires_at is not None and proved.expires_at <= now:
            raise Unauthenticated
        self._remember_use(proved.principal.key_id, now)
        return proved.principal

    async def fresh_principal(self, authorization: str | None) -> Principal:
        """Like `principal`, for routes that don't pass the limiter: asks Redis whether the tenant's epoch
        moved."""
        principal = await self.principal(authorization)
        try:
            epoch = await self._epochs.current(principal.tenant)
        except Unavailable:  # then what is known holds, for as long as it is kept here at all
            return principal
        if epoch in (None, principal.epoch):
            return principal
        self.invalidate(principal.tenant)
        return await self.principal(authorization)

    def invalidate(self, tenant: TenantId) -> None:
        """Forget what is cached of a tenant, because its epoch moved."""
        self._proved.forget(tenant)

    async def flush_uses(self) -> None:
        """Write when keys were last used; called now and then by the worker. Raises `Unavailable`."""
        used, self._used = self._used, {}
        if used:
            async with self._db.system_session() as session:
                await repository.touch(session, sorted(used), max(used.values()))

    async def _prove(self, secret: Secret) -> _Proved:
        refusal = self._refused.get(secret.digest)
        if refusal is not None:
            LOOKUPS.labels("refused").inc()
            raise _made(refusal)
        async with self._db.system_reader() as session:
            found = await repository.find(session, secret.public_id)
            budgets = await budgets_of(session, found) if found is not None else []
        refusal = self._reason_to_refuse(secret, found)
        if refusal is not None or found is None:
            LOOKUPS.labels("refused").inc()
            refusal = refusal or Unauthenticated
            self._refused.put(secret.digest, refusal)
            raise _made(refusal)
        LOOKUPS.labels("proved").inc()
        await self._reseal(secret, found.key)
        proved = _Proved(principal_of(found.key, found.tenant, budgets), found.key.expires_at)
        await self._epochs.publish(proved.principal.tenant, found.tenant.epoch)
        self._proved.put(secret.digest, proved, proved.principal.tenant)
        return proved

    def _reason_to_refuse(self, secret: Secret, found: repository.Found | None) -> type[ApiError] | None:
        if found is None or not self._peppers.proves(secret, found.key.secret_hmac, found.key.pepper_version):
            return Unauthenticated
        if found.key.revoked_at is not None:
            return Unauthenticated
        if found.key.expires_at is not None and found.key.expires_at <= datetime.now(UTC):
            return Unauthenticated
        if found.tenant.status == TenantStatus.SUSPENDED:
            return Forbidden
        return None

    async def _reseal(self, secret: Secret, key: ApiKey) -> None:
        """A key that was proved by the previous pepper moves to the current one."""
        if key.pepper_version == self._peppers.current_version:
            return
        async with self._db.system_session() as session:
            await repository.reseal(
                session, key.id, self._peppers.seal(secret), self._peppers.current_version
            )
        log.info("api_key_resealed", key_id=key.key_id)

    def _remember_use(self, key_id: str, now: datetime) -> None:
        if key_id in self._used or len(self._used) < MAX_TOUCHED:
            self._used[key_id] = now


def principal_of(key: ApiKey, tenant: Tenant, budgets: Sequence[BudgetRow] = ()) -> Principal:
    return Principal(
        tenant=TenantId(tenant.id),
        tenant_name=tenant.name,
        key_id=key.key_id,
        scopes=frozenset(Scope(scope) for scope in key.scopes),
        tenant_limits=limits_of(tenant),
        key_limits=limits_of(key),
        salt=tenant.salt,
        epoch=tenant.epoch,
        service_class=key.service_class,
        allowed_models=None if key.allowed_models is None else frozenset(key.allowed_models),
        response_cache=cache_policy(tenant),
        budgets=tuple(budget_of(row) for row in budgets),
    )


def _made(refusal: type[ApiError]) -> ApiError:
    if refusal is Forbidden:
        return Forbidden("This account is suspended.", code="tenant_suspended")
    return Unauthenticated()
