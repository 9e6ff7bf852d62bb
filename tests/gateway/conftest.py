"""The gateway's tests talk to a real PostgreSQL and a real Redis; each makes tenants of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient
from pydantic import SecretStr
from redis.asyncio import Redis

from deploy.local.services import DatabaseUrls
from gateway.admin_auth.bootstrap import ensure_admin, new_admin_token
from gateway.app import create_app
from gateway.catalog.repository import Line
from gateway.config import Settings
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.ids import uuid7
from gateway.models import BaseModel, Tenant
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


@pytest.fixture
async def line(db: Database, new_tenant: Callable[[], Awaitable[TenantId]]) -> Line:
    """A fresh tenant over a fresh base."""
    base_id = uuid4().hex * 2
    async with db.system_session() as session:
        session.add(BaseModel(base_id=base_id, name=f"base-{base_id[:12]}", spec={}))
    return Line(await new_tenant(), base_id)


@pytest.fixture
def settings(database: DatabaseUrls, redis_url: str, tmp_path: Path) -> Settings:
    """A gateway over the session's services, with a home of its own."""
    return settings_of(database, redis_url, tmp_path)


def settings_of(database: DatabaseUrls, redis_url: str, home: Path) -> Settings:
    return Settings(
        database_url=database.app,
        database_system_url=database.system,
        redis_url=redis_url,
        store_url=f"file://{home / 'store'}",
        home=home,
        journal_dir=home / "journal",
        pepper=SecretStr("pepper-" * 6),
        engine_token=SecretStr("engine-token-of-tests"),
        base_model=str(home / "model"),
        base_name="base",
    )


@pytest.fixture
def peppers(settings: Settings) -> Peppers:
    return Peppers(settings.pepper)


@pytest.fixture(scope="session")
def gateway(
    database: DatabaseUrls, redis_url: str, demo_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient[Any]]:
    """The whole application with its production layers, in a thread of its own; no replica behind it."""
    settings = settings_of(database, redis_url, tmp_path_factory.mktemp("gateway"))
    app = create_app(settings.model_copy(update={"base_model": str(demo_model_dir)}))
    with TestClient(app, raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture
def client(gateway: TestClient[Any]) -> TestClient[Any]:
    """A browser that has not been here before."""
    gateway.cookies.clear()
    return gateway


@dataclass(frozen=True)
class Operator:
    email: str
    password: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}


@pytest.fixture
async def operator(db: Database, peppers: Peppers) -> Operator:
    made = Operator(f"{uuid4().hex[:8]}@example.com", "correct horse battery", new_admin_token())
    await ensure_admin(db, peppers, made.email, made.password, made.token)
    return made
