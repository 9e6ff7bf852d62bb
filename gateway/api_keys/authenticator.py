"""Proves API keys: a header in, a `Principal` out.

What was proved is kept for a few seconds, and dropped sooner when its tenant's epoch moves (`revocation.py`).
While the database is away, what it proved last goes on for `stale_s`; a key that isn't known then is a 503.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter

from gateway.api_keys import repository
from gateway.api_keys.cache import TimedCache
from gateway.api_keys.grants import known_scopes
from gateway.caches.policy import cache_policy
from gateway.credentials import Peppers, Secret, SecretFormat
from gateway.db import Database
from gateway.errors import ApiError, Forbidden, Unauthenticated, Unavailable
from gateway.limits.columns import budget_of, limits_of
from gateway.limits.repository import budgets_of
from gateway.models import ApiKey, BudgetRow, Tenant, TenantStatus
from gateway.networks import NetworkSet
from gateway.principal import Principal, TenantId
from gateway.tenants.epochs import Epochs

log = structlog.get_logger(__name__)

API_KEY = SecretFormat("mt")
REFUSED_ENTRIES = 2_000
REFUSED_S = 2.0
MAX_TOUCHED = 10_000
AWAY_S = 5.0
"""After the database could not answer, known keys aren't held up by asking it again for so long."""

_NOBODY = ApiKey(secret_hmac=b"", pepper_version="")

LOOKUPS = Counter("motet_api_key_lookups", "API keys looked at, by what came of it.", ["outcome"])
_CACHED = LOOKUPS.labels("cached")


@dataclass(frozen=True, slots=True)
class _Proved:
    principal: Principal
    until: datetime | None  # of the key, or of a secret that was replaced; to the moment, cached or not
    by_previous: bool


@dataclass(frozen=True, slots=True)
class CacheLimits:
    entries: int = 10_000
    age_s: float = 10.0  # a proof is made anew after this long; the epoch makes it sooner
    stale_s: float = 300.0  # a proof is good for while the database is away


class Authenticator:
    """One per worker. A cache miss costs one query; malformed keys cost nothing."""

    def __init__(
        self,
        db: Database,
        peppers: Peppers,
        epochs: Epochs,
        limits: CacheLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = limits or CacheLimits()
        self._db = db
        self._peppers = peppers
        self._epochs = epochs
        self._clock = clock
        self._proved: TimedCache[_Proved] = TimedCache(
            limits.entries, limits.age_s, clock, stale_s=limits.stale_s
        )
        self._refused: TimedCache[type[ApiError]] = TimedCache(
            REFUSED_ENTRIES, min(REFUSED_S, limits.age_s), clock
        )
        self._asking: set[bytes] = set()
        self._away_until = 0.0
        self._used: dict[tuple[str, bool], datetime] = {}

    async def principal(self, authorization: str | None) -> Principal:
        """Whom an `Authorization` header proves. From where it may be used is for the door to check.

        Raises `Unauthenticated` (no key, unknown, revoked, expired, rotated out: all the same answer),
        `Forbidden` for a suspended tenant, and `Unavailable` when the database can't say.
        """
        if not authorization:
            raise Unauthenticated("You didn't provide an API key. Send it as 'Authorization: Bearer mt_…'.")
        secret = API_KEY.from_header(authorization)
        if secret is None:
            LOOKUPS.labels("malformed").inc()
            raise Unauthenticated
        digest = secret.digest
        proved = self._proved.get(digest)
        if proved is None:
            proved = await self._prove_or_go_on(secret, digest)
        else:
            _CACHED.inc()
        now = datetime.now(UTC)
        if proved.until is not None and proved.until <= now:
            raise Unauthenticated
        self._remember_use((proved.principal.key_id, proved.by_previous), now)
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

    def tenants(self) -> list[TenantId]:
        """Those of whom keys are known here."""
        return self._proved.tenants()

    def goes_on_alone(self) -> bool:
        """Whether a key is known here that goes on while the database is away."""
        return self._proved.holds_any()

    def moved(self, tenant: TenantId, epoch: int) -> bool:
        """A tenant's epoch is `epoch`: what was proved under an earlier one is forgotten. Whether there was
        any."""
        old = any(proved.principal.epoch < epoch for proved in self._proved.of(tenant))
        if old:
            self.invalidate(tenant)
        return old

    def database_answers(self, answers: bool) -> None:
        """What was seen of the database elsewhere in this worker."""
        self._away_until = 0.0 if answers else self._clock() + AWAY_S

    async def flush_uses(self) -> None:
        """Write when keys were last used; called now and then by the worker. Raises `Unavailable`."""
        used, self._used = self._used, {}
        for by_previous in (False, True):
            key_ids = sorted(key_id for key_id, previous in used if previous is by_previous)
            if key_ids:
                latest = max(moment for (_, previous), moment in used.items() if previous is by_previous)
                async with self._db.system_session() as session:
                    await repository.touch(session, key_ids, latest, by_previous=by_previous)

    async def _prove_or_go_on(self, secret: Secret, digest: bytes) -> _Proved:
        """Proves the secret, or gives what was proved of it before: while another request asks, and while the
        database is away."""
        known = self._proved.stale(digest)
        if known is not None and (digest in self._asking or self._away_until > self._clock()):
            LOOKUPS.labels("stale").inc()
            return known
        self._asking.add(digest)
        try:
            return await self._prove(secret, digest)
        except Unavailable:
            self.database_answers(False)
            known = self._proved.stale(digest)  # looked up again: it may have been revoked meanwhile
            if known is None:
                raise
            LOOKUPS.labels("stale").inc()
            return known
        finally:
            self._asking.discard(digest)

    async def _prove(self, secret: Secret, digest: bytes) -> _Proved:
        refusal = self._refused.get(digest)
        if refusal is not None:
            LOOKUPS.labels("refused").inc()
            raise _made(refusal)
        async with self._db.system_reader() as session:
            found = await repository.find(session, secret.public_id)
            budgets = await budgets_of(session, found) if found is not None else []
        self.database_answers(True)
        judged = self._judged(secret, found, budgets)
        if not isinstance(judged, _Proved):
            LOOKUPS.labels("refused").inc()
            self._refused.put(digest, judged)
            self._proved.discard(digest)
            raise _made(judged)
        assert found is not None
        LOOKUPS.labels("proved").inc()
        await self._reseal(secret, found.key, judged.by_previous)
        await self._epochs.publish(judged.principal.tenant, found.tenant.epoch)
        self._proved.put(digest, judged, judged.principal.tenant)
        return judged

    def _judged(
        self, secret: Secret, found: repository.Found | None, budgets: Sequence[BudgetRow]
    ) -> _Proved | type[ApiError]:
        """Both secrets are compared whatever comes of it, so that the time tells nothing."""
        key = _NOBODY if found is None else found.key
        current = self._proves(secret, key.secret_hmac, key.pepper_version)
        previous = self._proves(secret, key.previous_hmac, key.previous_pepper_version)
        if found is None or not (current or previous) or key.revoked_at is not None:
            return Unauthenticated
        ends = [key.expires_at, None if current else key.previous_until]
        until = min((end for end in ends if end is not None), default=None)
        if until is not None and until <= datetime.now(UTC):
            return Unauthenticated
        if found.tenant.status != TenantStatus.ACTIVE:
            return Forbidden
        return _Proved(principal_of(key, found.tenant, budgets), until, by_previous=not current)

    def _proves(self, secret: Secret, sealed: bytes | None, version: str | None) -> bool:
        return self._peppers.proves(secret, sealed or b"", version or "")

    async def _reseal(self, secret: Secret, key: ApiKey, by_previous: bool) -> None:
        """A secret that was proved by the previous pepper moves to the current one. It is proved already, so
        a database that can't write now is no reason to refuse it."""
        version = key.previous_pepper_version if by_previous else key.pepper_version
        if version == self._peppers.current_version:
            return
        seals = repository.Seals(
            old=key.previous_hmac if by_previous else key.secret_hmac,
            new=self._peppers.seal(secret),
            version=self._peppers.current_version,
        )
        try:
            async with self._db.system_session() as session:
                await repository.reseal(session, key.id, seals, previous=by_previous)
        except Unavailable:
            log.warning("api_key_not_resealed", key_id=key.key_id)
        else:
            log.info("api_key_resealed", key_id=key.key_id)

    def _remember_use(self, use: tuple[str, bool], now: datetime) -> None:
        if use in self._used or len(self._used) < MAX_TOUCHED:
            self._used[use] = now


def principal_of(key: ApiKey, tenant: Tenant, budgets: Sequence[BudgetRow] = ()) -> Principal:
    return Principal(
        tenant=TenantId(tenant.id),
        tenant_name=tenant.name,
        key_id=key.key_id,
        scopes=known_scopes(key.scopes),
        tenant_limits=limits_of(tenant),
        key_limits=limits_of(key),
        salt=tenant.salt,
        epoch=tenant.epoch,
        service_class=key.service_class,
        share_weight=tenant.share_weight,
        allowed_models=None if key.allowed_models is None else frozenset(key.allowed_models),
        response_cache=cache_policy(tenant),
        allowed_networks=None if key.allowed_networks is None else NetworkSet(key.allowed_networks),
        expires_at=key.expires_at,
        budgets=tuple(budget_of(row) for row in budgets),
    )


def _made(refusal: type[ApiError]) -> ApiError:
    if refusal is Forbidden:
        return Forbidden("This account is suspended.", code="tenant_suspended")
    return Unauthenticated()
