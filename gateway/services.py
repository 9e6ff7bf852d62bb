"""Everything long-lived of a gateway process: built here, in order, and closed here, in reverse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from litestar.types import Scope
from redis.asyncio import Redis

from gateway.admin_auth.service import AdminAuthenticator
from gateway.api_keys.authenticator import Authenticator, CacheLimits
from gateway.api_keys.service import ApiKeys
from gateway.audit.service import AuditLog
from gateway.config import Settings
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.redis import connect
from gateway.tenants.epochs import Epochs
from gateway.tenants.service import Tenants


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
    keys: ApiKeys
    audit: AuditLog
    probe: Callable[[], Awaitable[None]]  # one token through the whole path; raises ApiError when it fails


def services_of(scope: Scope) -> Services:
    found = scope["litestar_app"].state.services
    assert isinstance(found, Services)
    return found


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    peppers = Peppers(settings.pepper, settings.pepper_previous)
    async with AsyncExitStack() as stack:
        db = Database(settings.database_url, settings.database_system_url)
        stack.push_async_callback(db.close)
        redis = connect(settings.redis_url)
        stack.push_async_callback(redis.aclose)
        epochs = Epochs(redis)
        cache = CacheLimits(settings.key_cache_entries, settings.key_cache_s)
        authenticator = Authenticator(db, peppers, epochs, cache)
        yield Services(
            settings=settings,
            db=db,
            redis=redis,
            epochs=epochs,
            authenticator=authenticator,
            admins=AdminAuthenticator(db, redis, peppers),
            tenants=Tenants(db, epochs),
            keys=ApiKeys(db, peppers, epochs),
            audit=AuditLog(db),
            probe=_no_inference,
        )


async def _no_inference() -> None:
    raise Unavailable("Inference is not set up.")
