"""The rules of a tenant's caches: the response cache is off unless an operator turns it on, and one call
drops it together with the prefix cache."""

from __future__ import annotations

import secrets
from uuid import UUID

import structlog
from redis.asyncio import Redis

from gateway.audit.service import Actor, Change, record
from gateway.caches import repository
from gateway.caches.schemas import CachesDropped, CachesPatch
from gateway.db import Database
from gateway.edits import require_match
from gateway.errors import BadRequest, NotFound, Unavailable
from gateway.inference import response_cache
from gateway.models import Tenant
from gateway.principal import TenantId
from gateway.tenants import repository as tenants
from gateway.tenants.epochs import Epochs
from gateway.tenants.service import SALT_BYTES

log = structlog.get_logger(__name__)


class Caches:
    def __init__(self, db: Database, redis: Redis, epochs: Epochs) -> None:
        self._db = db
        self._redis = redis
        self._epochs = epochs

    async def get(self, tenant: UUID) -> Tenant:
        """Raises `NotFound`."""
        async with self._db.system_reader() as session:
            return _existing(await tenants.find(session, tenant))

    async def change(
        self, actor: Actor, tenant: UUID, wanted: CachesPatch, if_match: str | None = None
    ) -> Tenant:
        """All workers act on it with the tenant's next request. Raises `NotFound`, and `PreconditionFailed`
        when they are not what `if_match` says."""
        values = wanted.changes()
        if not values:
            raise BadRequest("Name at least one field to change.")
        async with self._db.system_session() as session:
            before = _existing(await tenants.lock(session, tenant))
            require_match(if_match, CachesPatch.fields_of(before))
            changed = _existing(await tenants.change(session, tenant, values))
            record(session, actor, Change("caches.update", changed.name, TenantId(tenant), values))
        await self._epochs.publish(TenantId(tenant), changed.epoch)
        return changed

    async def drop(self, actor: Actor, tenant: UUID) -> CachesDropped:
        """Names of cached answers and of KV blocks change at once, so nothing of before is found again; then
        the answers are deleted. Raises `NotFound`."""
        async with self._db.system_session() as session:
            changed = _existing(await repository.renew(session, tenant, secrets.token_hex(SALT_BYTES)))
            details = {"cache_epoch": changed.cache_epoch}
            record(session, actor, Change("caches.drop", changed.name, TenantId(tenant), details))
        await self._epochs.publish(TenantId(tenant), changed.epoch)
        try:
            answers = await response_cache.drop(self._redis, TenantId(tenant))
        except Unavailable:  # they can't be found any more, and go by themselves when they are old
            log.warning("cached_answers_not_deleted", tenant=str(tenant))
            answers = 0
        return CachesDropped(changed.cache_epoch, answers)


def _existing(tenant: Tenant | None) -> Tenant:
    if tenant is None:
        raise NotFound("There is no such tenant.")
    return tenant
