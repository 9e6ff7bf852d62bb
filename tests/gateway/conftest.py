"""The gateway's tests talk to a real PostgreSQL and a real Redis; each makes tenants of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from deploy.local.services import DatabaseUrls
from gateway.db import Database
from gateway.ids import uuid7
from gateway.models import Tenant
from gateway.principal import TenantId
from gateway.redis import connect


@pytest.fixture
async def db(database: DatabaseUrls) -> AsyncIterator[Database]:
    opened = Database(database.app, database.system)
    yield opened
    await opened.close()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def new_tenant(db: Database) -> Callable[[], Awaitable[TenantId]]:
    """Makes a tenant row under a name that no other test uses."""

    async def make() -> TenantId:
        tenant = Tenant(id=uuid7(), name=f"tenant-{uuid4().hex[:12]}", salt=uuid4().hex)
        async with db.system_session() as session:
            session.add(tenant)
        return TenantId(tenant.id)

    return make


@pytest.fixture
async def tenant(new_tenant: Callable[[], Awaitable[TenantId]]) -> TenantId:
    return await new_tenant()
