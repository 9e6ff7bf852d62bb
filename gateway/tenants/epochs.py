"""A tenant's epoch moves whenever something cached about it changed: a key, an alias, a limit, its status.

The truth is the row in Postgres. Redis holds a copy that every request reads on its way through the limiter,
so that all workers learn of a change with the next request and need no notification.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog
from redis.asyncio import Redis
from sqlalchemy import func, select, update

from gateway.db import SystemRead, SystemWrite, TenantWrite
from gateway.errors import Unavailable
from gateway.models import Tenant
from gateway.principal import TenantId
from gateway.redis import Script, TenantKeys, redis_errors

log = structlog.get_logger(__name__)

_RAISE = Script.load(Path(__file__).parent / "raise_epoch.lua")


async def bump(session: TenantWrite | SystemWrite, tenant: TenantId) -> int:
    """The tenant's next epoch, in the transaction of the change that it stands for. Publish it after the
    commit."""
    statement = (
        update(Tenant)
        .where(Tenant.id == tenant)
        .values(epoch=Tenant.epoch + 1, updated_at=func.now())
        .returning(Tenant.epoch)
        .execution_options(synchronize_session=False)
    )
    return (await session.execute(statement)).scalar_one()


async def read(session: SystemRead, tenants: Sequence[TenantId]) -> list[tuple[TenantId, int]]:
    """Epochs as the rows have them."""
    found = await session.execute(select(Tenant.id, Tenant.epoch).where(Tenant.id.in_(tenants)))
    return [(TenantId(tenant), epoch) for tenant, epoch in found]


class Epochs:
    """The copies in Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def publish(self, tenant: TenantId, epoch: int) -> None:
        """Raise the copy to `epoch`. Never raises: a worker that missed it learns within the key cache's
        age, and whoever reads the row publishes again."""
        try:
            await _RAISE(self._redis, [TenantKeys(tenant).epoch], [epoch])
        except Unavailable:
            log.warning("epoch_not_published", tenant=str(tenant), epoch=epoch)

    async def current(self, tenant: TenantId) -> int | None:
        """The copy; None when Redis holds none. Raises `Unavailable`."""
        with redis_errors():
            known = await self._redis.get(TenantKeys(tenant).epoch)
        return None if known is None else int(known)
