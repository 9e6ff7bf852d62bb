"""Embedded services: they start, come back after a kill, and their roles can't pass row-level security."""

from __future__ import annotations

import asyncpg
import pytest
from redis.asyncio import Redis

from deploy.local.services import DatabaseUrls


@pytest.mark.parametrize("role", ["owner", "app", "system"])
async def test_no_role_can_bypass_row_level_security(postgres: DatabaseUrls, role: str) -> None:
    connection = await asyncpg.connect(getattr(postgres, role))
    try:
        row = await connection.fetchrow(
            "select rolsuper, rolbypassrls, rolcreaterole, rolcreatedb"
            " from pg_roles where rolname = current_user"
        )
    finally:
        await connection.close()
    assert row is not None
    assert tuple(row) == (False, False, False, False)


async def test_redis_wants_its_password(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as client:
        assert await client.ping()
