"""Another tenant's ids, in every route that takes one, asked by everybody who could ask: the answer is the
one for an id that nobody has, byte for byte. Routes and their parameters are read from the application, so
that a new one is swept too, and a new kind of id, of body or of query fails until it is taught here."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
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
from gateway.principal import Role, Scope, TenantId
from gateway.roles import EVERYONE, roles_of
from gateway.services import Services
from gateway.usage.repository import insert_events
from tests.gateway.conftest import Operator
from tests.gateway.events.making import make_event as make_request_event
from tests.gateway.route_bodies import (
    BODIES,
    CHANGING_HEADERS,
    IDS_OF_OPERATORS,
    NO_IDS,
    NO_STREAM,
    NOT_THERE_YET,
    PLACES,
    STREAMS,
    TENANT,
)
from tests.gateway.uploads.making import begin_upload
from tests.gateway.usage.test_journal import make_event

Client = TestClient[Any]

MAKES_ITS_OWN = {
    ("post", "/v1/adapters/{name}/versions"),
    ("post", "/api/v1/tenants/{tenant}/adapters/{name}/versions"),
}
"""Not a look-up: the name is free to each tenant. What it answers must not tell who else has it."""


@dataclass(frozen=True)
class Owner:
    """A tenant with one of everything that has an id, and what a stranger may write for it."""

    tenant: TenantId
    name: str
    key_id: str
    headers: dict[str, str]  # of its API key, which may do everything
    admin: dict[str, str]  # of its own administrator
    member: str
    token: str
    adapter: str
    recipient: str  # with whom its adapter is shared
    export: str
    request: str
    endpoint: str
    delivery: str
    rollout: str
    upload: str

    @property
    def ids(self) -> dict[str, str]:
        """By path parameter."""
        return {
            "tenant": str(self.tenant),
            "key_id": self.key_id,
            "member_id": self.member,
            "token_id": self.token,
            "name": self.adapter,
            "model": self.adapter,
            "recipient": self.recipient,
            "number": "1",
            "other": "1",
            "export_id": self.export,
            "version": "1",
            "month": "2026-01",
            "request_id": self.request,
            "endpoint_id": self.endpoint,
            "delivery_id": self.delivery,
            "upload_id": self.upload,
            "alias": LIVE,
            "rollout_id": self.rollout,
            **dict.fromkeys(("replica", "check_id"), str(self.tenant)),
            **dict.fromkeys(("base_id", "digest"), "c" * 64),
        }


def _nobodys() -> dict[str, str]:
    """Ids of the same form and length that no one has."""
    name = f"a{uuid4().hex[:12]}"
    return {
        "key_id": "a" * 12,
        "token_id": "b" * 12,
        "name": name,
        "model": name,
        "recipient": str(uuid4()),
        "number": "1",
        "other": "1",
        "export_id": uuid4().hex * 2,
        "version": "1",
        "month": "2026-01",
        "alias": LIVE,
        **{each: str(uuid4()) for each in ("tenant", "member_id", "replica", "check_id")},
        **dict.fromkeys(
            ("request_id", "endpoint_id", "delivery_id", "rollout_id", "upload_id"), str(uuid7())
        ),
        **dict.fromkeys(("base_id", "digest"), "a" * 64),
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
        later = uuid4().hex * 2
        await repository.add_version(session, row, NewVersion(later, later, manifest, 1))
    root = f"/api/v1/tenants/{tenant}"

    def make(path: str, body: dict[str, Any]) -> Any:
        answer = client.post(f"{root}{path}", json=body, headers=operator.headers)
        assert answer.status_code == 201, answer.text
        return answer.json()

    made = make("/keys", {"name": "all", "scopes": list(Scope)})
    member = make("/members", {"email": f"{uuid4()}@example.com", "role": "tenant_admin"})["id"]
    token = make(f"/members/{member}/tokens", {"name": "t"})
    name = client.get(root, headers=operator.headers).json()["name"]
    headers = {"authorization": f"Bearer {made['secret']}"}
    used = make_event(tenant_id=tenant)
    async with db.system_session() as system:
        await insert_events(system, [used])
        await events.add(system, [make_request_event(tenant, request_id=used.request_id)])
    hook = make("/webhooks", {"url": "https://hooks.example/"})
    endpoint = str(hook["endpoint"]["id"])
    sent = client.post(f"/v1/webhooks/{endpoint}/ping", headers=headers).json()
    friend = client.post("/api/v1/tenants", json={"name": uuid4().hex}, headers=operator.headers).json()["id"]
    shared = client.put(f"{root}/adapters/{adapter}/shares/{friend}", json={}, headers=operator.headers)
    assert shared.status_code == 200, shared.text
    return Owner(
        tenant=tenant,
        name=name,
        key_id=made["key"]["id"],
        headers=headers,
        admin={"authorization": f"Bearer {token['secret']}"},
        member=member,
        token=token["token"]["id"],
        adapter=adapter,
        recipient=friend,
        export=await _export(client, db, headers),
        request=str(used.request_id),
        endpoint=endpoint,
        delivery=str(sent["id"]),
        rollout=make(f"/adapters/{adapter}/rollouts", {"to": 2})["id"],
        upload=begin_upload(client, headers),
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


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    parameters: list[str]

    @property
    def makes_its_own(self) -> bool:
        return (self.method, self.path) in MAKES_ITS_OWN

    @property
    def body(self) -> dict[str, Any] | None:
        """Of a route that names a thing of a tenant."""
        below = self.path.removeprefix(TENANT).removeprefix("/v1")
        if self.method not in ("post", "put", "patch") or self.makes_its_own:
            return None
        named = set(self.parameters) - {"tenant"}
        reached = self.path.startswith(("/v1/", TENANT))
        assert not (named and reached) or f"{self.method} {below}" in BODIES, (
            f"teach this test a body of {self}"
        )
        return BODIES.get(f"{self.method} {below}")

    def ask(self, client: Client, ids: Mapping[str, str], headers: Mapping[str, str]) -> Response:
        path = re.sub(r"\{(\w+)\}", lambda match: ids[match[1]], self.path)
        return client.request(self.method.upper(), path, json=self.body, headers={**headers, **NO_STREAM})


def _routes(client: Client) -> list[Route]:
    """Every route with an id in its path."""
    found = []
    for path, method, public in openapi.operations(cast(Litestar, client.app)):
        parameters = re.findall(r"\{(\w+)\}", path)
        if parameters and not public:
            assert set(parameters) <= set(_nobodys()), f"teach this test the ids of {path}"
            found.append(Route(method, path, parameters))
    assert len(found) > 40
    return found


def _told(answer: Response, ids: Mapping[str, str]) -> tuple[int, bytes, dict[str, str]]:
    """What a stranger can learn from it, the ids that it sent itself aside."""
    body = answer.content
    for value in sorted(set(ids.values()) - {"1"}):
        body = body.replace(value.encode(), b"<id>")
    headers = {name: value for name, value in answer.headers.items() if name not in CHANGING_HEADERS}
    return answer.status_code, body, headers


def _swept(
    client: Client, wanted: Callable[[Route], bool], ids: Mapping[str, str], headers: Mapping[str, str]
) -> Iterator[tuple[Route, int]]:
    """Asks each route for `ids` and, in their place, for what nobody has; gives the status of both."""
    for route in filter(wanted, _routes(client)):
        told = [
            _told(route.ask(client, each, headers), each) for each in (ids, {**_nobodys(), **_fixed(ids)})
        ]
        assert told[0] == told[1], route
        yield route, told[0][0]


def _fixed(ids: Mapping[str, str]) -> dict[str, str]:
    """What both have in common: the tenant whose path it is, where it is named apart."""
    return {"tenant": ids["tenant"]} if ids.get("fixed") else {}


def _under(tenant: TenantId, victim: Owner) -> dict[str, str]:
    """The victim's things under another tenant's path."""
    return {**victim.ids, "tenant": str(tenant), "fixed": "1"}


async def test_a_key_learns_nothing_from_anothers_ids(client: Client, owners: tuple[Owner, Owner]) -> None:
    victim, stranger = owners
    for route, status in _swept(client, lambda _: True, victim.ids, stranger.headers):
        wanted = 401 if route.path.startswith("/api/") else 404
        assert status == wanted or route.makes_its_own, (route, status)
        if route.method == "get" and wanted == 404 and route.path not in NOT_THERE_YET:  # real ids
            assert route.ask(client, victim.ids, victim.headers).status_code == 200, route
    _assert_whole(client, victim)


async def test_an_account_learns_nothing_of_a_tenant_that_is_not_its_own(
    client: Client, owners: tuple[Owner, Owner]
) -> None:
    """Whatever the route asks of a role: the tenant itself is unknown."""
    victim, stranger = owners
    for route, status in _swept(
        client, lambda route: route.path.startswith("/api/"), victim.ids, stranger.admin
    ):
        is_open = roles_of(route.method.upper(), route.path) == EVERYONE
        wanted = 404 if "tenant" in route.parameters or is_open else 403
        assert status == wanted, (route, status)
        allowed = Role.TENANT_ADMIN in roles_of(route.method.upper(), route.path)
        if route.method == "get" and allowed and route.path not in NOT_THERE_YET:
            wanted = 406 if route.path in STREAMS else 200
            assert route.ask(client, victim.ids, victim.admin).status_code == wanted, route
    _assert_whole(client, victim)


@pytest.mark.parametrize("asks", ["operator", "administrator"])
async def test_under_one_tenants_path_anothers_ids_are_unknown(
    client: Client, operator: Operator, owners: tuple[Owner, Owner], asks: str
) -> None:
    """An operator may reach every tenant, but never one tenant's things by another's path."""
    victim, other = owners
    headers = operator.headers if asks == "operator" else other.admin

    def of_a_tenant(route: Route) -> bool:
        return "tenant" in route.parameters and len(route.parameters) > 1 and not route.makes_its_own

    swept = 0
    for route, status in _swept(client, of_a_tenant, _under(other.tenant, victim), headers):
        allowed = asks == "operator" or Role.TENANT_ADMIN in roles_of(route.method.upper(), route.path)
        assert status == (404 if allowed else 403), (route, status)
        swept += 1
    assert swept >= 15
    _assert_whole(client, victim)


async def test_a_list_that_goes_on_at_anothers_place_shows_nothing_of_theirs(
    client: Client, owners: tuple[Owner, Owner]
) -> None:
    victim, stranger = owners
    document = client.get("/openapi.json").json()["paths"]
    for path, item in document.items():
        for method, operation in item.items():
            named = {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
            unknown = named - NO_IDS - PLACES
            only_operators = path.startswith("/api/") and not roles_of(method.upper(), path) - {Role.OPERATOR}
            assert not unknown or (only_operators and unknown <= IDS_OF_OPERATORS), (path, unknown)
            for place in named & PLACES if method == "get" else ():
                for value in victim.ids.values():
                    _assert_shows_nothing(client, path, {place: value}, victim, stranger)


def _assert_shows_nothing(
    client: Client, path: str, query: dict[str, str], victim: Owner, stranger: Owner
) -> None:
    headers = stranger.admin if path.startswith("/api/") else stranger.headers
    asked = re.sub(r"\{(\w+)\}", lambda match: stranger.ids[match[1]], path)
    answer = client.get(asked, params=query, headers={**headers, **NO_STREAM})
    body = answer.text.replace(next(iter(query.values())), "")
    secrets = set(victim.ids.values()) | {victim.name}
    assert not [value for value in secrets - {"1", LIVE} if value in body], (path, query)


async def test_the_list_of_tenants_is_the_accounts_own(
    client: Client, operator: Operator, owners: tuple[Owner, Owner]
) -> None:
    victim, stranger = owners
    seen = client.get("/api/v1/tenants", headers=stranger.admin).json()
    assert [one["id"] for one in seen["data"]] == [str(stranger.tenant)]
    after = client.get("/api/v1/tenants", params={"limit": 200}, headers=operator.headers).json()
    assert roles_of("GET", "/api/v1/tenants") == EVERYONE
    assert after["data"]
    assert str(victim.tenant) not in json.dumps(seen)


FORMS = ["{name}", "{name}@1", "{name}@live", "{owner}/{name}", "{owner}/{name}@1"]
MODEL_PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/models/{model}"]


@pytest.mark.parametrize("path", MODEL_PATHS)
async def test_a_model_in_any_form_is_as_unknown_as_one_that_nobody_has(
    client: Client, owners: tuple[Owner, Owner], path: str
) -> None:
    victim, stranger = owners
    for form in FORMS:
        told = []
        for owner, name in ((victim.name, victim.adapter), ("nobody", f"a{uuid4().hex[:12]}")):
            model = form.format(owner=owner, name=name)
            answer = _asked_for(client, path, model, stranger.headers)
            assert answer.json()["error"]["code"] == "model_not_found"
            told.append(_told(answer, {"model": model}))
        assert told[0] == told[1], form
        assert told[0][0] == 404


def _asked_for(client: Client, path: str, model: str, headers: dict[str, str]) -> Response:
    if "{" in path:
        return client.get(path.format(model=model), headers=headers)
    chat = {"messages": [{"role": "user", "content": "x"}]}
    prompt = {"prompt": "x"} if path == "/v1/completions" else chat
    return client.post(path, content=json.dumps({"model": model, **prompt}), headers=headers)


def _assert_whole(client: Client, owner: Owner) -> None:
    """Nothing of it was changed by what strangers tried."""
    seen = client.get(f"/v1/adapters/{owner.adapter}/versions/1", headers=owner.headers)
    assert (seen.status_code, seen.json()["state"]) == (200, "ready")
    assert seen.json()["aliases"] == [LIVE]
    key = client.get(f"/v1/keys/{owner.key_id}", headers=owner.headers).json()
    assert (key["name"], key["rotated_at"], key["revoked_at"]) == ("all", None, None)
    root = f"/api/v1/tenants/{owner.tenant}/members/{owner.member}"
    assert client.get(root, headers=owner.admin).json()["role"] == "tenant_admin"
    assert client.get(f"/v1/uploads/{owner.upload}", headers=owner.headers).json()["received"] == 0
    tokens = client.get(f"{root}/tokens", headers=owner.admin).json()["data"]
    assert [(token["id"], token["revoked_at"]) for token in tokens] == [(owner.token, None)]
