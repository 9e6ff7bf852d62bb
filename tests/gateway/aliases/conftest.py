"""A tenant's adapter with three ready versions, as its API key sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient
from sqlalchemy import select

from gateway.catalog import repository
from gateway.catalog.names import LIVE
from gateway.catalog.repository import Line, NewVersion
from gateway.db import Database
from gateway.models import Tenant
from gateway.principal import Limits, Principal, Scope, TenantId
from gateway.services import Services
from tests.gateway.conftest import Operator

MANIFEST: dict[str, Any] = {"ranks": [1], "targets": ["q_proj"], "num_modules": 1, "num_parameters": 1}


@dataclass(frozen=True)
class Shop:
    """`url` of the adapter, whose alias `live` is version 1."""

    client: TestClient[Any]
    services: Services
    tenant: TenantId
    headers: dict[str, str]
    name: str
    line: Line

    @property
    def url(self) -> str:
        return f"/v1/adapters/{self.name}"

    def put(self, alias: str, body: dict[str, Any], **headers: str) -> Any:
        return self.client.put(f"{self.url}/aliases/{alias}", json=body, headers={**self.headers, **headers})

    def get(self, path: str) -> Any:
        return self.client.get(f"{self.url}{path}", headers=self.headers)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return self.client.post(f"{self.url}{path}", json=body or {}, headers=self.headers)

    async def principal(self, db: Database) -> Principal:
        """As the next request of its key is let in."""
        async with db.tenant_reader(self.tenant) as session:
            epoch = (await session.scalars(select(Tenant.epoch).where(Tenant.id == self.tenant))).one()
        scopes = frozenset(Scope)
        return Principal(self.tenant, "shop", "k", scopes, Limits(), Limits(), "salt", epoch)


def artefact(number: int) -> str:
    return f"{number:064x}"


async def add_versions(db: Database, line: Line, name: str, num: int) -> None:
    async with db.tenant_session(line.tenant) as session:
        adapter = await repository.lock_or_add_adapter(session, line, name)
        for number in range(1, num + 1):
            new = NewVersion(artefact(number), artefact(number), MANIFEST, 1)
            await repository.add_version(session, adapter, new)
        await repository.move_alias(session, adapter, LIVE, 1)


@pytest.fixture
async def shop(
    client: TestClient[Any],
    operator: Operator,
    db: Database,
    new_tenant: Callable[[], Awaitable[TenantId]],
) -> Shop:
    services = client.app.state.services
    assert isinstance(services, Services)
    tenant, name = await new_tenant(), f"a{uuid4().hex[:12]}"
    line = Line(tenant, services.catalog.base_id)
    await add_versions(db, line, name, 3)
    key = {"name": "all", "scopes": [*Scope]}
    made = client.post(f"/api/v1/tenants/{tenant}/keys", json=key, headers=operator.headers).json()
    return Shop(client, services, tenant, {"authorization": f"Bearer {made['secret']}"}, name, line)
