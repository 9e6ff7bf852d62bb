"""Keys that carry their tenant, and scripts that survive a server that forgot them."""

from __future__ import annotations

from uuid import UUID

import pytest
from redis.asyncio import Redis

from gateway.errors import Unavailable
from gateway.principal import TenantId
from gateway.redis import PlatformKeys, Script, TenantKeys, connect

TENANT = TenantId(UUID("01890000-0000-7000-8000-000000000001"))


def test_every_key_of_a_tenant_starts_with_its_hash_tag() -> None:
    keys = TenantKeys(TENANT)
    assert keys.key("tokens", "k1") == f"{{{TENANT}}}:tokens:k1"
    assert keys.epoch == f"{{{TENANT}}}:epoch"
    assert PlatformKeys("session").key("x") == "{motet-session}:x"


async def test_a_script_runs_before_and_after_the_server_forgot_it(redis: Redis) -> None:
    script = Script("return {KEYS[1], tonumber(ARGV[1]) + 1}")
    key = TenantKeys(TENANT).key("script-test")
    for _ in range(2):
        await redis.script_flush()
        assert await script(redis, [key], [41]) == [key.encode(), 42]
        assert await script(redis, [key], [1]) == [key.encode(), 2]


async def test_a_redis_that_is_away_is_a_503() -> None:
    client = connect("redis://127.0.0.1:1/0", timeout_s=0.2)
    with pytest.raises(Unavailable):
        await Script("return 1")(client, [TenantKeys(TENANT).epoch], [])
    await client.aclose()
