"""A suspended tenant is kept out by every worker with its next request, and let in again."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from gateway.api_keys.authenticator import REFUSED_S, Authenticator, CacheLimits
from gateway.api_keys.grants import BY_ROLE
from gateway.api_keys.schemas import KeyCreate
from gateway.api_keys.service import ApiKeys
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.errors import Forbidden
from gateway.limits.limiter import Limiter
from gateway.principal import Role, TenantId
from gateway.tenants.epochs import Epochs
from tests.gateway.tenants.conftest import OPERATOR, House


async def test_each_worker_knows_with_the_next_request(
    house: House, db: Database, redis: Redis, peppers: Peppers, tenant: TenantId
) -> None:
    epochs = Epochs(redis)
    _, secret = await ApiKeys(db, peppers, epochs).create(
        OPERATOR, tenant, KeyCreate(name="k"), within=BY_ROLE[Role.OPERATOR]
    )
    header = f"Bearer {secret.text}"
    cache = CacheLimits(age_s=60.0)  # what is cached would be good for longer than the test runs
    workers = [Authenticator(db, peppers, epochs, cache) for _ in range(3)]
    before = [await worker.fresh_principal(header) for worker in workers]

    await house.tenants.suspend(OPERATOR, tenant, "unpaid")
    for worker in workers:
        with pytest.raises(Forbidden) as refused:
            await worker.fresh_principal(header)
        assert refused.value.code == "tenant_suspended"
    # the way of inference: the limiter's answer tells that the epoch moved
    reservation = await Limiter(redis, lease_s=60).admit(before[0], str(uuid4()))
    assert reservation.epoch > before[0].epoch

    await house.tenants.resume(OPERATOR, tenant)
    await asyncio.sleep(REFUSED_S)  # so long a refusal is remembered
    for worker in workers:
        assert (await worker.fresh_principal(header)).tenant == tenant
