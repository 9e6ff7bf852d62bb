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
from gateway import metric_values
from gateway.admin_auth.service import AdminAuthenticator
from gateway.admin_auth.sessions import SessionStore
from gateway.aliases.service import Aliases
from gateway.api_keys.authenticator import Authenticator, CacheLimits
from gateway.api_keys.revocation import Revocation
from gateway.api_keys.service import ApiKeys
from gateway.attention.service import Lookout
from gateway.audit.service import AuditLog
from gateway.billing.opening import Billing, open_billing
from gateway.caches.service import Caches
from gateway.catalog.hints import ReplicaHints
from gateway.catalog.intake import Intake
from gateway.catalog.lifecycle import Lifecycle
from gateway.catalog.opening import open_catalog
from gateway.catalog.service import Catalog
from gateway.changes.opening import Sources, open_changes
from gateway.changes.service import Changes
from gateway.client_address import TrustedProxies
from gateway.config import Settings
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.draining import Leaving
from gateway.errors import Unavailable
from gateway.inference.serving import Needs, Serving, open_serving
from gateway.limits.service import LimitReports, LimitSettings
from gateway.members.service import Members
from gateway.oidc.service import LogIns, open_log_ins
from gateway.placement.quota import Quota
from gateway.placement.service import Placements
from gateway.proofs.service import Proofs
from gateway.receipts.opening import receipt_keys
from gateway.receipts.service import Receipts
from gateway.redis import connect
from gateway.replicas.service import Replicas
from gateway.retention.service import Retention
from gateway.retirement.purge import Purges
from gateway.retirement.service import Retirement
from gateway.rollouts.service import Rollouts
from gateway.sharing.service import Base, Sharing
from gateway.store_checks.service import StoreChecks
from gateway.tenants.epochs import Epochs
from gateway.tenants.offboarding import Offboardings
from gateway.tenants.service import Tenants
from gateway.upgrades.service import Upgrades
from gateway.uploads.opening import open_uploads
from gateway.uploads.service import Uploads
from gateway.uploads.taking import Taking
from gateway.webhooks.opening import open_webhooks
from gateway.webhooks.service import Webhooks

log = structlog.get_logger(__name__)

FLUSH_USES_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What handlers reach for. Each is one per worker."""

    settings: Settings
    proxies: TrustedProxies
    db: Database
    redis: Redis
    epochs: Epochs
    authenticator: Authenticator
    admins: AdminAuthenticator
    log_ins: LogIns
    tenants: Tenants
    offboardings: Offboardings
    caches: Caches
    keys: ApiKeys
    members: Members
    limit_settings: LimitSettings
    limit_reports: LimitReports
    audit: AuditLog
    retention: Retention
    billing: Billing
    receipts: Receipts
    webhooks: Webhooks
    catalog: Catalog
    intake: Intake
    lifecycle: Lifecycle
    uploads: Uploads
    taking: Taking
    proofs: Proofs
    aliases: Aliases
    rollouts: Rollouts
    retirement: Retirement
    store_checks: StoreChecks
    sharing: Sharing
    replicas: Replicas
    placements: Placements
    upgrades: Upgrades
    changes: Changes
    serving: Serving
    lookout: Lookout

    @property
    def probe(self) -> Callable[[], Awaitable[None]]:
        """One token through the whole path of a request; raises `ApiError` when it fails."""
        return self.serving.probe


def services_of(scope: Scope) -> Services:
    found = scope["litestar_app"].state.services
    assert isinstance(found, Services)
    return found


@dataclass(frozen=True, slots=True)
class _Ground:
    """What the services of nouns stand on."""

    db: Database
    redis: Redis
    epochs: Epochs
    authenticator: Authenticator
    catalog: Catalog
    serving: Serving


async def _open_ground(
    stack: AsyncExitStack, settings: Settings, base: BaseSpec, peppers: Peppers
) -> _Ground:
    """Closed by the stack, in turn."""
    await stack.enter_async_context(metric_values.written())
    db = Database(settings.database_url, settings.database_system_url)
    stack.push_async_callback(db.close)
    redis = connect(settings.redis_url)
    stack.push_async_callback(redis.aclose)
    epochs = Epochs(redis)
    cache = CacheLimits(settings.key_cache_entries, settings.key_cache_s, settings.key_stale_s)
    authenticator = Authenticator(db, peppers, epochs, cache)
    await stack.enter_async_context(_flushing(authenticator))
    catalog = Catalog(db, base)
    revocation = Revocation(settings.database_url, db, authenticator, catalog.resolved)
    await stack.enter_async_context(revocation.running())
    needs = Needs(settings=settings, db=db, redis=redis, keys=authenticator, catalog=catalog, base=base)
    serving = await stack.enter_async_context(open_serving(needs))
    return _Ground(db, redis, epochs, authenticator, catalog, serving)


def _fleet(
    settings: Settings, db: Database, base: BaseSpec, serving: Serving
) -> tuple[Replicas, Placements, Upgrades]:
    """What operators do with replicas, where adapters lie on them, and which weights they serve."""
    settled, registry = bool(settings.base_digests), serving.registry
    placed = Quota(settings.tenant_placed_slots, settings.tenant_placed_bytes)
    return (
        Replicas(db, base.base_id, serving.fleet.tokens, registry, settled=settled),
        Placements(db, registry, base.base_id, placed),
        Upgrades(db, base.base_id, settled=settled),
    )


@asynccontextmanager
async def open_services(settings: Settings, leaving: Leaving) -> AsyncIterator[Services]:
    """Raises OSError or ValueError when the base model's folder can't be read, ValueError for a setting."""
    proxies = TrustedProxies(settings.trusted_proxies, settings.forwarded_header)
    peppers = Peppers(settings.pepper, settings.pepper_previous)
    base = BaseSpec.from_dir(Path(settings.base_model), settings.base_name)
    async with AsyncExitStack() as stack:
        ground = await _open_ground(stack, settings, base, peppers)
        db, redis, epochs, catalog = ground.db, ground.redis, ground.epochs, ground.catalog
        serving, registry = ground.serving, ground.serving.registry
        sessions = SessionStore(redis, settings.session_idle_s, settings.session_life_s)
        admins = AdminAuthenticator(db, redis, peppers, sessions)
        stack.push_async_callback((hints := ReplicaHints(registry)).close)
        parts = await stack.enter_async_context(open_catalog(settings, db, epochs, base, hints, registry))
        arrivals = await stack.enter_async_context(open_uploads(settings, db, base.base_id, parts.intake))
        store = parts.shelf.store
        purges = Purges(db, store, lambda: {each.url: each.driver for each in registry.all}, base.base_id)
        checks = StoreChecks(db, store, settings.store_url)
        replicas, placements, upgrades = _fleet(settings, db, base, serving)
        sources = Sources(db, base.base_id, registry, placements.moved, sessions)
        changes = await stack.enter_async_context(open_changes(settings, sources, leaving))
        yield Services(
            settings=settings,
            proxies=proxies,
            db=db,
            redis=redis,
            epochs=epochs,
            authenticator=ground.authenticator,
            admins=admins,
            log_ins=open_log_ins(settings, db, redis, admins),
            tenants=Tenants(db, epochs),
            offboardings=Offboardings(db, epochs, settings.offboarding_grace_h),
            caches=Caches(db, redis, epochs),
            keys=ApiKeys(db, peppers, epochs, catalog.is_reserved),
            members=Members(db, peppers),
            limit_settings=LimitSettings(db, epochs, base.base_id),
            limit_reports=LimitReports(serving.limiter, serving.counter, catalog),
            audit=AuditLog(db),
            retention=Retention(db),
            billing=open_billing(settings, db),
            receipts=Receipts(db, redis, receipt_keys(settings), settings.journal_dir),
            webhooks=open_webhooks(settings, db),
            catalog=catalog,
            intake=parts.intake,
            lifecycle=parts.lifecycle,
            uploads=arrivals.uploads,
            taking=arrivals.taking,
            proofs=parts.proofs,
            aliases=Aliases(db, epochs, hints, base.base_id),
            rollouts=Rollouts(db, epochs, base.base_id),
            retirement=Retirement(db, epochs, store, purges, base.base_id),
            store_checks=checks,
            sharing=Sharing(db, epochs, Base(base.base_id, base.name)),
            replicas=replicas,
            placements=placements,
            upgrades=upgrades,
            changes=changes,
            serving=serving,
            lookout=Lookout(db, replicas, checks, serving.queue),
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
