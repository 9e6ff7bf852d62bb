"""Replicas through the API: registered by operators and by themselves, drained, removed, their tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient
from pydantic import SecretStr
from sqlalchemy import select, update

from gateway.db import Database
from gateway.models import BaseModel, Replica
from gateway.services import Services
from tests.gateway.conftest import Operator

Client = TestClient[Any]
REGISTRATION = "registration-token-of-tests"


def services(client: Client) -> Services:
    found = client.app.state.services
    assert isinstance(found, Services)
    return found


@pytest.fixture
def registering(client: Client) -> Iterator[dict[str, str]]:
    """Headers of a replica, in front of a gateway that has a registration token."""
    found = services(client)
    before = found.settings
    token = SecretStr(REGISTRATION)
    object.__setattr__(found, "settings", before.model_copy(update={"registration_token": token}))
    yield {"authorization": f"Bearer {REGISTRATION}"}
    object.__setattr__(found, "settings", before)


def url() -> str:
    return f"http://{uuid4().hex[:12]}.example:8090"


def create(client: Client, operator: Operator, **more: Any) -> dict[str, Any]:
    answer = client.post("/api/v1/replicas", json={"url": url(), **more}, headers=operator.headers)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def actions(client: Client, operator: Operator, target: str) -> list[str]:
    events = client.get("/api/v1/audit?limit=200", headers=operator.headers).json()["data"]
    return [event["action"] for event in events if event["target"] == target]


async def test_a_replica_is_added_drained_and_removed(client: Client, operator: Operator) -> None:
    made = create(client, operator, pools=["long", "general", "long"])
    assert (made["state"], made["source"], made["pools"]) == ("up", "operator", ["long", "general"])
    path = f"/api/v1/replicas/{made['id']}"
    assert client.get(path, headers=operator.headers).json() == made
    drained = client.patch(path, json={"state": "draining"}, headers=operator.headers).json()
    can = ["resume", "change_pools", "change_token", "remove"]
    assert (drained, made["can"][0]) == (made | {"state": "draining", "can": can}, "drain")
    again = client.post("/api/v1/replicas", json={"url": made["url"]}, headers=operator.headers)
    assert again.status_code == 409
    removed = client.delete(path, headers=operator.headers)
    assert (removed.status_code, removed.json()["state"]) == (200, "down")
    for method in ("GET", "PATCH", "DELETE"):
        gone = client.request(method, path, json={"state": "up"}, headers=operator.headers)
        assert gone.status_code == 404
    assert actions(client, operator, made["url"]) == ["replica.remove", "replica.update", "replica.create"]
    back = client.post("/api/v1/replicas", json={"url": made["url"]}, headers=operator.headers)
    assert (back.status_code, back.json()["pools"]) == (201, ["general"])


async def test_the_list_goes_by_pages(client: Client, operator: Operator) -> None:
    mine = {create(client, operator)["id"] for _ in range(3)}
    seen: list[str] = []
    cursor = None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = client.get("/api/v1/replicas", params=query, headers=operator.headers).json()
        seen += [each["id"] for each in page["data"]]
        cursor = page["next_cursor"]
        assert page["has_more"] is (cursor is not None)
        if cursor is None:
            break
    assert mine <= set(seen)
    assert len(seen) == len(set(seen))


async def test_tokens_are_sealed_and_never_shown(client: Client, operator: Operator, db: Database) -> None:
    first, second = "first-token-of-this-one", "second-token-of-this-one"
    made = create(client, operator, token=first)
    assert made["own_token"]
    path = f"/api/v1/replicas/{made['id']}/token"
    given = client.post(path, json={"token": second}, headers=operator.headers)
    assert given.json()["token"] is None
    made_up = client.post(path, json={}, headers=operator.headers).json()["token"]
    async with db.system_reader() as session:
        row = (await session.scalars(select(Replica).where(Replica.url == made["url"]))).one()
    assert services(client).serving.fleet.tokens.of(row) == (made_up, second)
    log = client.get("/api/v1/audit?limit=200", headers=operator.headers).text
    shown = client.get("/api/v1/replicas?limit=200", headers=operator.headers).text
    for secret in (first, second, made_up):
        assert secret not in log + shown
        assert secret.encode() not in (row.token or b"") + (row.token_previous or b"")


async def test_one_without_a_token_of_its_own_may_go_on_with_the_shared_one(
    client: Client, operator: Operator, db: Database
) -> None:
    made = create(client, operator)
    token = client.post(f"/api/v1/replicas/{made['id']}/token", json={}, headers=operator.headers).json()
    async with db.system_reader() as session:
        row = (await session.scalars(select(Replica).where(Replica.url == made["url"]))).one()
    assert services(client).serving.fleet.tokens.of(row) == (token["token"], "engine-token-of-tests")


async def test_a_replica_registers_itself(
    client: Client, operator: Operator, db: Database, registering: dict[str, str]
) -> None:
    base_id = services(client).catalog.base.base_id
    where = url()
    said = {"url": where, "base_id": base_id, "token": "own-token-0123456789", "pools": ["batch"]}
    path = "/api/v1/replica-registration"
    for headers in ({}, {"authorization": "Bearer wrong"}, operator.headers):
        refused = client.put(path, json=said, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "invalid_registration_token")
    first = client.put(path, json=said, headers=registering)
    assert (first.status_code, first.json()["state"], first.json()["heartbeat_s"]) == (200, "up", 5.0)
    assert client.put(path, json=said, headers=registering).json() == first.json()
    restarted = client.put(path, json=said | {"token": "new-token-0123456789"}, headers=registering)
    assert restarted.json()["id"] == first.json()["id"]
    async with db.system_reader() as session:
        row = (await session.scalars(select(Replica).where(Replica.url == where))).one()
    assert services(client).serving.fleet.tokens.of(row) == ("new-token-0123456789", "own-token-0123456789")
    assert actions(client, operator, where) == ["replica.rotate_token", "replica.register"]
    shown = client.get(f"/api/v1/replicas/{row.id}", headers=operator.headers).json()
    assert (shown["source"], shown["pools"]) == ("self", ["batch"])

    client.delete(f"/api/v1/replicas/{row.id}", headers=operator.headers)
    told = client.put(path, json=said, headers=registering)
    assert told.json()["state"] == "down", "it does not come back by itself"
    other = client.put(path, json=said | {"base_id": "0" * 64}, headers=registering)
    assert (other.status_code, other.json()["code"]) == (409, "other_base")


async def test_nobody_registers_where_no_token_is_set(client: Client) -> None:
    assert services(client).settings.registration_token is None
    said = {"url": url(), "base_id": "0" * 64, "token": "own-token-0123456789"}
    for given in ("Bearer ", "Bearer None", ""):
        answer = client.put("/api/v1/replica-registration", json=said, headers={"authorization": given})
        assert answer.status_code == 401


async def test_what_can_not_be_is_refused(client: Client, operator: Operator) -> None:
    for body in (
        {"url": "ftp://a"},
        {"url": "http://user:pass@a"},
        {"url": "http://a?x=1"},
        {"url": "http://a", "pools": []},
        {"url": "http://a", "pools": ["No Such"]},
        {"url": "http://a", "token": "short"},
        {"url": "http://a", "token": "with a space in it"},
    ):
        assert client.post("/api/v1/replicas", json=body, headers=operator.headers).status_code == 400, body
    made = create(client, operator)
    for change in ({}, {"state": "down"}, {"url": "http://b"}):
        answer = client.patch(f"/api/v1/replicas/{made['id']}", json=change, headers=operator.headers)
        assert answer.status_code == 400, change


async def test_rules_are_replaced_as_a_whole(client: Client, operator: Operator) -> None:
    rules: list[dict[str, Any]] = [
        {"pool": "long", "min_prompt_tokens": 8000},
        {"pool": "batch", "service_class": "batch", "fallback": False},
        {"pool": "own", "tenant": str(uuid4()), "adapter": "pirate"},
    ]
    done = client.put("/api/v1/pool-rules", json={"rules": rules}, headers=operator.headers)
    assert done.status_code == 200
    found = client.get("/api/v1/pool-rules", headers=operator.headers).json()["rules"]
    assert [{name: value for name, value in rule.items() if value is not None} for rule in found] == [
        {"fallback": True} | rule for rule in rules
    ]
    many = client.put("/api/v1/pool-rules", json={"rules": rules * 22}, headers=operator.headers)
    assert many.status_code == 400
    assert client.put("/api/v1/pool-rules", json={"rules": []}, headers=operator.headers).json() == {
        "rules": [],
        "can": ["change"],
    }
    assert actions(client, operator, services(client).catalog.base.base_id)[:2] == ["pool_rules.update"] * 2


async def test_weights_are_admitted_by_an_operator(client: Client, operator: Operator, db: Database) -> None:
    base_id = services(client).catalog.base.base_id
    wanted = {"digests": ["a" * 64, "b" * 64]}
    done = client.put("/api/v1/base-weights", json=wanted, headers=operator.headers)
    assert (done.status_code, done.json()["digests"]) == (200, wanted["digests"])
    assert client.get("/api/v1/base-weights", headers=operator.headers).json()["digests"] == wanted["digests"]
    assert (
        client.put("/api/v1/base-weights", json={"digests": []}, headers=operator.headers).status_code == 400
    )
    async with db.system_session() as session:
        await session.execute(update(BaseModel).where(BaseModel.base_id == base_id).values(digests=None))
    assert json.loads(client.get("/api/v1/base-weights", headers=operator.headers).text)["digests"] is None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/pool-rules", {"rules": [{"pool": "long"}]}),
        ("/api/v1/base-weights", {"digests": ["c" * 64]}),
    ],
)
async def test_what_somebody_else_put_meanwhile_is_not_overwritten(
    client: Client, operator: Operator, db: Database, path: str, body: dict[str, Any]
) -> None:
    before = client.get(path, headers=operator.headers)
    tagged = operator.headers | {"if-match": before.headers["etag"]}
    first = client.put(path, json=body, headers=tagged)
    assert first.status_code == 200
    late = client.put(path, json=body, headers=tagged)
    assert (late.status_code, late.headers["etag"]) == (412, first.headers["etag"])
    client.put("/api/v1/pool-rules", json={"rules": []}, headers=operator.headers)
    async with db.system_session() as session:
        base_id = services(client).catalog.base.base_id
        await session.execute(update(BaseModel).where(BaseModel.base_id == base_id).values(digests=None))


@pytest.mark.parametrize(
    "where", ["http://host:eVY", "http://host:0", "http://host:65536", "http://host:1:2"]
)
def test_an_address_has_a_port_that_can_be(client: Client, operator: Operator, where: str) -> None:
    answer = client.post("/api/v1/replicas", json={"url": where}, headers=operator.headers)
    assert answer.status_code == 400, answer.text
