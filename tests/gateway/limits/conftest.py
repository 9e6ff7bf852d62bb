from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from gateway.limits.limiter import Limiter
from gateway.principal import Limits, Principal, Scope, TenantId
from gateway.redis import connect

MakePrincipal = Callable[..., Principal]


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    await client.flushdb()
    yield client
    await client.aclose()


@pytest.fixture
def limiter(redis: Redis) -> Limiter:
    return Limiter(redis, lease_s=60)


@pytest.fixture
def principal() -> MakePrincipal:
    def make(tenant: Limits | None = None, key: Limits | None = None, key_id: str = "k1") -> Principal:
        return Principal(
            tenant=TenantId(uuid4()),
            tenant_name="acme",
            key_id=key_id,
            scopes=frozenset({Scope.INFERENCE}),
            tenant_limits=tenant or Limits(),
            key_limits=key or Limits(),
            salt="salt",
            epoch=1,
        )

    return make
