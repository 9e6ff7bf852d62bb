"""Tenants with adapters in the catalog, and a gateway before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from httpx import Response
from litestar.testing import TestClient

from adapters.digest import artefact_id
from gateway.catalog import repository
from gateway.catalog.names import LIVE
from gateway.catalog.repository import Line, NewVersion
from gateway.catalog.service import Catalog
from gateway.db import Database
from gateway.models import Tenant
from gateway.principal import Limits, Principal, Scope, TenantId
from gateway.services import Services
from tests.gateway.conftest import Operator

Client = TestClient[Any]
MANIFEST = {"ranks": [1], "targets": ["q_proj"], "num_modules": 1, "num_parameters": 1}


@dataclass(frozen=True)
class Party:
    """A tenant, with a key that may do everything and an administrator's token."""

    client: Client
    id: TenantId
    name: str
    headers: dict[str, str]
    admin: dict[str, str]

    @property
    def root(self) -> str:
        return f"/api/v1/tenants/{self.id}"

    def get(self, path: str, **query: Any) -> Response:
        return self.client.get(path, headers=self.headers, params=query)

    def models(self) -> list[str]:
        return [each["id"] for each in self.get("/v1/models").json()["data"]]

    def model(self, model: str) -> Response:
        return self.get(f"/v1/models/{model}")


class Town:
    """Makes parties, their adapters and shares."""

    def __init__(self, client: Client, db: Database, operator: Operator) -> None:
        self.client, self.db, self.operator = client, db, operator

    @property
    def services(self) -> Services:
        found = self.client.app.state.services
        assert isinstance(found, Services)
        return found

    @property
    def catalog(self) -> Catalog:
        """A worker's, in this event loop."""
        return Catalog(self.db, self.services.catalog.base)

    async def principal(self, party: Party) -> Principal:
        """As its key would be proved now."""
        async with self.db.system_reader() as session:
            row = await session.get_one(Tenant, party.id)
        return Principal(
            tenant=party.id,
            tenant_name=row.name,
            key_id="k1",
            scopes=frozenset(Scope),
            tenant_limits=Limits(),
            key_limits=Limits(),
            salt=row.salt,
            epoch=row.epoch,
        )

    def party(self, name: str | None = None, **key: Any) -> Party:
        name = name or f"t{uuid4().hex[:12]}"
        made = self.post("/api/v1/tenants", {"name": name})
        root = f"/api/v1/tenants/{made['id']}"
        secret = self.post(f"{root}/keys", {"name": "k", "scopes": list(Scope), **key})["secret"]
        member = self.post(f"{root}/members", {"email": f"{uuid4()}@example.com", "role": "tenant_admin"})
        token = self.post(f"{root}/members/{member['id']}/tokens", {"name": "t"})["secret"]
        return Party(self.client, TenantId(UUID(made["id"])), name, _bearer(secret), _bearer(token))

    def key(self, party: Party, **policy: Any) -> dict[str, str]:
        return _bearer(self.post(f"{party.root}/keys", {"name": "more", **policy})["secret"])

    def post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.client.post(path, json=body, headers=self.operator.headers)
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def add(self, party: Party, name: str, *, content: str | None = None, live: bool = True) -> str:
        """A ready version as an upload leaves it; its artefact."""
        content = content or uuid4().hex * 2
        artefact = artefact_id(str(party.id), content)
        async with self.db.tenant_session(party.id) as session:
            line = Line(party.id, self.services.catalog.base_id)
            adapter = await repository.lock_or_add_adapter(session, line, name)
            version = await repository.add_version(
                session, adapter, NewVersion(artefact, content, MANIFEST, 1)
            )
            if live:
                await repository.move_alias(session, adapter, LIVE, version.number)
        return artefact

    def share(self, owner: Party, name: str, to: Party | None, **body: Any) -> Response:
        path = f"{owner.root}/adapters/{name}/shares/{'all' if to is None else to.id}"
        return self.client.put(path, json=body, headers=self.operator.headers)

    def end(self, owner: Party, name: str, to: Party | None) -> Response:
        path = f"{owner.root}/adapters/{name}/shares/{'all' if to is None else to.id}"
        return self.client.delete(path, headers=self.operator.headers)


@pytest.fixture
def town(client: Client, db: Database, operator: Operator) -> Town:
    return Town(client, db, operator)


def _bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}
