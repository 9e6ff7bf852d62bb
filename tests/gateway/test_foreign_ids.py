"""Another tenant's ids, in every route that takes one: the answer is the one for an id that nobody has, byte
for byte. The routes are read from the application, so that a new one is swept too, and a new kind of id fails
until it is taught here."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

import pytest
from httpx import Response
from litestar import Litestar
from litestar.testing import TestClient

from adapters.store import open_store
from gateway import openapi
from gateway.billing.exports.maker import Maker
from gateway.catalog import repository
from gateway.catalog.names import LIVE
from gateway.catalog.repository import Line, NewVersion
from gateway.db import Database
from gateway.events import repository as events
from gateway.ids import uuid7
from gateway.principal import TenantId
from gateway.services import Services
from gateway.usage.repository import insert_events
from tests.gateway.conftest import Operator
from tests.gateway.events.making import make_event as make_request_event
from tests.gateway.usage.test_journal import make_event

Client = TestClient[Any]

MAKES_ITS_OWN = {
    ("post", "/v1/adapters/{name}/versions"),
    ("post", "/api/v1/tenants/{tenant}/adapters/{name}/versions"),
}
"""Not a look-up: the name is free to each tenant. What it answers must not tell who else has it."""

CHANGING_HEADERS = {"x-request-id", "content-length", "date"}


@dataclass(frozen=True)
class Owner:
    """A tenant with one of everything that has an id, and what a stranger may write for it."""

    tenant: TenantId
    name: str
    key_id: str
    headers: dict[str, str]
    adapter: str
    export: str
    request: str
    endpoint: str
    delivery: str

    @property
    def ids(self) -> dict[str, str]:
        """By path parameter."""
        return {
            "tenant": str(self.tenant),
            "key_id": self.key_id,
            "name": self.adapter,
            "model": self.adapter,
            "number": "1",
            "export_id": self.export,
            "version": "1",
            "request_id": self.request,
            "endpoint_id": self.endpoint,
            "delivery_id": self.delivery,
            "replica": str(self.tenant),
        }


@pytest.fixture
async def owners(
    client: Client, operator: Operator, db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> tuple[Owner, Owner]:
    return await _owner(client, operator, db, await new_tenant()), await _owner(
        client, operator, db, await new_tenant()
    )


async def _owner(client: Client, operator: Operator, db: Database, tenant: TenantId) -> Owner:
    base = _services(client).catalog.base
    digest, adapter = uuid4().hex * 2, f"a{uuid4().hex[:12]}"
    manifest = {"ranks": [1], "targets": ["q_proj"], "num_modules": 1, "num_parameters": 1}
    async with db.tenant_session(tenant) as session:
        row = await repository.lock_or_add_adapter(session, Line(tenant, base.base_id), adapter)
        await repository.add_version(session, row, NewVersion(digest, digest, manifest, 1))
        await repository.move_alias(session, row, LIVE, 1)
    scopes = ["inference", "adapters:write", "usage:read", "webhooks"]
    made = client.post(
        f"/api/v1/tenants/{tenant}/keys", json={"name": "all", "scopes": scopes}, headers=operator.headers
    ).json()
    name = client.get(f"/api/v1/tenants/{tenant}", headers=operator.headers).json()["name"]
    headers = {"authorization": f"Bearer {made['secret']}"}
    used = make_event(tenant_id=tenant)
    async with db.system_session() as session:
        await insert_events(session, [used])
        await events.add(session, [make_request_event(tenant, request_id=used.request_id)])
    export = await _export(client, db, headers)
    hook = client.post("/v1/webhooks", json={"url": "https://hooks.example/"}, headers=headers).json()
    endpoint = str(hook["endpoint"]["id"])
    sent = client.post(f"/v1/webhooks/{endpoint}/ping", headers=headers).json()
    return Owner(
        tenant=tenant,
        name=name,
        key_id=made["key"]["id"],
        headers=headers,
        adapter=adapter,
        export=export,
        request=str(used.request_id),
        endpoint=endpoint,
        delivery=str(sent["id"]),
    )


async def _export(client: Client, db: Database, headers: dict[str, str]) -> str:
    """One that is made, so that its owner can fetch it."""
    asked = client.post("/v1/billing/exports", json={"month": "2026-01"}, headers=headers).json()
    settings = _services(client).settings
    store = open_store(settings.store_url)
    await Maker(db, store, settings.home / "exports", settings.billing_issuer).run_once()
    return str(asked["id"])


def _services(client: Client) -> Services:
    found = client.app.state.services
    assert isinstance(found, Services)
    return found


def _nobodys() -> dict[str, str]:
    """Ids of the same form and length that no one has."""
    name = f"a{uuid4().hex[:12]}"
    ids = {"tenant": str(uuid4()), "key_id": "a" * 12, "name": name, "model": name, "number": "1"}
    ids |= {"export_id": uuid4().hex * 2, "version": "1", "replica": str(uuid4())}
    return ids | {name: str(uuid7()) for name in ("request_id", "endpoint_id", "delivery_id")}


def _routes(client: Client) -> list[tuple[str, str, list[str]]]:
    """(method, path, its parameters) of every route with an id in its path."""
    found = []
    for path, method, public in openapi.operations(cast(Litestar, client.app)):
        parameters = re.findall(r"\{(\w+)\}", path)
        if parameters and not public:
            found.append((method, path, parameters))
    assert len(found) > 15
    return found


def _ask(client: Client, method: str, path: str, headers: Mapping[str, str]) -> Response:
    """With a body that changes nothing where one is read, so that what is told is about the ids."""
    body = {} if method in ("patch", "post") else None
    return client.request(method.upper(), path, json=body, headers=dict(headers))


def _fill(path: str, ids: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: ids[match[1]], path)


def _told(answer: Response, ids: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]]:
    """What a stranger can learn from it, the ids that it sent itself aside."""
    body = answer.content
    for value in sorted(set(ids.values()) - {"1"}):
        body = body.replace(value.encode(), b"<id>")
    headers = {name: value for name, value in answer.headers.items() if name not in CHANGING_HEADERS}
    return answer.status_code, body, headers


async def test_a_tenant_learns_nothing_from_anothers_ids(client: Client, owners: tuple[Owner, Owner]) -> None:
    victim, stranger = owners
    for method, path, parameters in _routes(client):
        assert set(parameters) <= set(victim.ids), f"teach this test the ids of {path}"
        told = []
        for ids in (victim.ids, _nobodys()):
            answer = _ask(client, method, _fill(path, ids), stranger.headers)
            told.append(_told(answer, ids))
        assert told[0] == told[1], (method, path)
        wanted = 401 if path.startswith("/api/") else 404
        assert told[0][0] == wanted or (method, path) in MAKES_ITS_OWN, (method, path, told[0])
        if method == "get" and wanted == 404:  # the ids are real: to their owner they answer
            assert client.get(_fill(path, victim.ids), headers=victim.headers).status_code == 200, path
    _assert_whole(client, victim)


async def test_under_one_tenants_path_anothers_ids_are_unknown(
    client: Client, operator: Operator, owners: tuple[Owner, Owner]
) -> None:
    """An operator may reach every tenant, but never one tenant's things by another's path."""
    victim, other = owners
    swept = 0
    for method, path, parameters in _routes(client):
        if "tenant" not in parameters or len(parameters) == 1 or (method, path) in MAKES_ITS_OWN:
            continue
        told = []
        for ids in (victim.ids, _nobodys()):
            mixed = {**ids, "tenant": str(other.tenant)}
            answer = _ask(client, method, _fill(path, mixed), operator.headers)
            told.append(_told(answer, mixed))
        assert told[0] == told[1], (method, path)
        assert told[0][0] == 404, (method, path, told[0])
        swept += 1
    assert swept >= 5
    _assert_whole(client, victim)


FORMS = ["{name}", "{name}@1", "{name}@live", "{owner}/{name}", "{owner}/{name}@1"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/models/{model}"])
async def test_a_model_in_any_form_is_as_unknown_as_one_that_nobody_has(
    client: Client, owners: tuple[Owner, Owner], path: str, form: str
) -> None:
    victim, stranger = owners
    told = []
    for owner, name in ((victim.name, victim.adapter), ("nobody", f"a{uuid4().hex[:12]}")):
        model = form.format(owner=owner, name=name)
        if "{" in path:
            answer = client.get(path.format(model=model), headers=stranger.headers)
        else:
            prompt = (
                {"prompt": "x"}
                if path == "/v1/completions"
                else {"messages": [{"role": "user", "content": "x"}]}
            )
            answer = client.post(
                path, content=json.dumps({"model": model, **prompt}), headers=stranger.headers
            )
        assert answer.json()["error"]["code"] == "model_not_found"
        told.append(_told(answer, {"model": model}))
    assert told[0] == told[1]
    assert told[0][0] == 404


def _assert_whole(client: Client, owner: Owner) -> None:
    """Nothing of it was changed by what strangers tried."""
    seen = client.get(f"/v1/adapters/{owner.adapter}/versions/1", headers=owner.headers)
    assert (seen.status_code, seen.json()["state"]) == (200, "ready")
    assert seen.json()["aliases"] == [LIVE]
