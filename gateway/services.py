"""Everything long-lived of a gateway process: built here, in order, and closed here, in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from litestar.types import Scope
from redis.asyncio import Redis

from adapters.base import BaseSpec
from gateway.admin_auth.service import AdminAuthenticator
from gateway.api_keys.authenticator import Authenticator, CacheLimits
from gateway.api_keys.service import ApiKeys
from gateway.audit.service import AuditLog
from gateway.billing.opening import Billing, open_billing
from gateway.caches.service import Caches
from gateway.catalog.hints import ReplicaHints
from gateway.catalog.intake import Intake
from gateway.catalog.lifecycle import Lifecycle
from gateway.catalog.opening import open_catalog
from gateway.catalog.service import Catalog
from gateway.config import Settings
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.inference.serving import Needs, Serving, open_serving
from gateway.limits.service import LimitReports, LimitSettings
from gateway.redis import connect
from gateway.tenants.epochs import Epochs
from gateway.tenants.service import Tenants

log = structlog.get_logger(__name__)

FLUSH_USES_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What handlers reach for. Each is one per worker."""

    settings: Settings
    db: Database
    redis: Redis
    epochs: Epochs
    authenticator: Authenticator
    admins: AdminAuthenticator
    tenants: Tenants
    caches: Caches
    keys: ApiKeys
    limit_settings: LimitSettings
    limit_reports: LimitReports
    audit: AuditLog
    billing: Billing
    catalog: Catalog
    intake: Intake
    lifecycle: Lifecycle
    serving: Serving

    @property
    def probe(self) -> Callable[[], Awaitable[None]]:
        """One token through the whole path of a request; raises `ApiError` when it fails."""
        return self.serving.probe


def services_of(scope: Scope) -> Services:
    found = scope["litestar_app"].state.services
    assert isinstance(found, Services)
    return found


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Raises OSError or ValueError when the base model's folder can't be read."""
    peppers = Peppers(settings.pepper, settings.pepper_previous)
    base = BaseSpec.from_dir(Path(settings.base_model), settings.base_name)
    async with AsyncExitStack() as stack:
        db = Database(settings.database_url, settings.database_system_url)
        stack.push_async_callback(db.close)
        redis = connect(settings.redis_url)
        stack.push_async_callback(redis.aclose)
        epochs = Epochs(redis)
        cache = CacheLimits(settings.key_cache_entries, settings.key_cache_s)
        authenticator = Authenticator(db, peppers, epochs, cache)
        await stack.enter_async_context(_flushing(authenticator))
        catalog = Catalog(db, base)
        needs = Needs(settings=settings, db=db, redis=redis, keys=authenticator, catalog=catalog, base=base)
        serving = await stack.enter_async_context(open_serving(needs))
        hints = ReplicaHints(serving.registry)
        stack.push_async_callback(hints.close)
        parts = await stack.enter_async_context(open_catalog(settings, db, epochs, base, hints))
        yield Services(
            settings=settings,
            db=db,
            redis=redis,
            epochs=epochs,
            authenticator=authenticator,
            admins=AdminAuthenticator(db, redis, peppers),
            tenants=Tenants(db, epochs),
            caches=Caches(db, redis, epochs),
            keys=ApiKeys(db, peppers, epochs),
            limit_settings=LimitSettings(db, epochs, base.base_id),
            limit_reports=LimitReports(serving.limiter, serving.counter, catalog),
            audit=AuditLog(db),
            billing=open_billing(settings, db),
            catalog=catalog,
            intake=parts.intake,
            lifecycle=parts.lifecycle,
            serving=serving,
        )


@asynccontextmanager
async def _flushing(authenticator: Authenticator) -> AsyncIterator[None]:
    """Writes now and then when keys were last used, and once more at the end."""
    task = asyncio.create_task(_flush_forever(authenticator), name="flush-key-uses")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        await _flush(authenticator)


async def _flush_forever(authenticator: Authenticator) -> None:
    while True:
        await asyncio.sleep(FLUSH_USES_S)
        await _flush(authenticator)


async def _flush(authenticator: Authenticator) -> None:
    try:
        await authenticator.flush_uses()
    except Unavailable:
        log.warning("key_uses_not_written")
