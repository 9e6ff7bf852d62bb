"""Code and schema of different releases: what `/readyz` says, and what goes on all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from litestar.testing import TestClient
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

import migrations
from deploy.local.services import DatabaseUrls
from migrations import async_url
from tests.gateway.conftest import Operator

Client = TestClient[Any]


@asynccontextmanager
async def schema(database: DatabaseUrls, revision: str, oldest_release: str) -> AsyncIterator[None]:
    """The database as another release left it, as far as it says."""
    owner = create_async_engine(async_url(database.owner))

    async def say(its_revision: str, its_oldest: str) -> str:
        async with owner.begin() as connection:
            before = await connection.scalar(text("SELECT oldest_release FROM schema_support"))
            await connection.execute(
                text("UPDATE alembic_version SET version_num = :it"), {"it": its_revision}
            )
            oldest = text("UPDATE schema_support SET oldest_release = :it")
            await connection.execute(oldest, {"it": its_oldest})
        return str(before)

    before = await say(revision, oldest_release)
    try:
        yield
    finally:
        await say(migrations.head(), before)
        await owner.dispose()


DRIFTS = [
    ("0091", "0093", "Run the migrations."),  # the schema is older
    ("9999", "9998", "Run a newer release."),  # it is newer, and took away what this code needs
]


@pytest.mark.parametrize(("revision", "oldest", "told"), DRIFTS)
async def test_drift_fails_readiness_and_nothing_else(
    client: Client, operator: Operator, database: DatabaseUrls, revision: str, oldest: str, told: str
) -> None:
    tenant = client.post(
        "/api/v1/tenants", json={"name": f"drift-{revision}"}, headers=operator.headers
    ).json()
    url = f"/api/v1/tenants/{tenant['id']}/keys"
    secret = client.post(url, json={"name": "k"}, headers=operator.headers).json()["secret"]
    async with schema(database, revision, oldest):
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (503, False)
        assert revision in answer.json()["checks"]["database"]
        assert answer.json()["checks"]["database"].endswith(told)
        assert client.get("/healthz").status_code == 200
        log_in = {"email": operator.email, "password": operator.password}
        assert client.post("/api/v1/session", json=log_in).status_code == 201
        assert client.get("/v1/models", headers={"authorization": f"Bearer {secret}"}).status_code == 200
    assert client.get("/readyz").status_code == 200


async def test_a_schema_that_was_only_expanded_is_as_good(client: Client, database: DatabaseUrls) -> None:
    async with schema(database, "9999", migrations.head()):
        assert client.get("/readyz").status_code == 200
