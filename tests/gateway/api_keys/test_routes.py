"""Keys over HTTP: a tenant's own management of them, and from where one may be used."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest
from litestar.testing import TestClient

from tests.gateway.conftest import Operator

Client = TestClient[Any]


@pytest.fixture
def tenant(client: Client, operator: Operator) -> str:
    made = client.post("/api/v1/tenants", json={"name": uuid4().hex}, headers=operator.headers).json()
    return f"/api/v1/tenants/{made['id']}"


def make(client: Client, operator: Operator, tenant: str, **fields: Any) -> tuple[str, dict[str, str]]:
    answer = client.post(f"{tenant}/keys", json={"name": "k", **fields}, headers=operator.headers)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    return made["key"]["id"], {"authorization": f"Bearer {made['secret']}"}


def test_a_tenant_manages_its_keys_with_one_that_may(client: Client, operator: Operator, tenant: str) -> None:
    _, plain = make(client, operator, tenant)
    assert client.get("/v1/keys", headers=plain).status_code == 403
    mine, headers = make(
        client,
        operator,
        tenant,
        scopes=["keys:write", "inference"],
        allowed_models=["pirate", "shout"],
        requests_per_minute=100,
    )
    narrower = {"name": "n", "allowed_models": ["pirate"], "requests_per_minute": 10}
    made = client.post("/v1/keys", json=narrower, headers=headers)
    assert made.status_code == 201, made.text
    child = made.json()["key"]["id"]
    for wider, param in (
        ({"allowed_models": ["pirate", "other"]}, "allowed_models"),
        ({"allowed_models": None}, "allowed_models"),
        ({"requests_per_minute": None}, "requests_per_minute"),
        ({"service_class": "interactive"}, "service_class"),
        ({"scopes": ["usage:read"]}, "scopes"),
    ):
        created = client.post("/v1/keys", json={**narrower, **wider}, headers=headers)
        changed = client.patch(f"/v1/keys/{child}", json=wider, headers=headers)
        for answer in (created, changed):
            assert (answer.status_code, answer.json()["error"]["param"]) == (403, param), wider
    assert {one["id"] for one in client.get("/v1/keys", headers=headers).json()["data"]} == {mine, child}
    assert client.delete(f"/v1/keys/{child}", headers=headers).status_code == 200

    log = client.get(f"{tenant}/audit", headers=operator.headers).json()["data"]
    assert (log[0]["actor"], log[0]["action"]) == (f"key:{mine}", "api_key.revoke")


def test_a_key_rotates_itself(client: Client, operator: Operator, tenant: str) -> None:
    key_id, old = make(client, operator, tenant, scopes=["keys:write", "inference"])
    rotated = client.post(f"/v1/keys/{key_id}/rotate", json={"overlap_s": 3600}, headers=old)
    assert rotated.status_code == 200
    body = rotated.json()
    new = {"authorization": f"Bearer {body['secret']}"}
    assert body["key"]["id"] == key_id
    assert body["key"]["previous_until"] > body["key"]["rotated_at"]
    for headers in (old, new):
        assert client.get("/v1/models", headers=headers).status_code == 200
    again = client.post(f"/v1/keys/{key_id}/rotate", json={}, headers=new)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "rotation_under_way")
    assert client.delete(f"/v1/keys/{key_id}/previous-secret", headers=new).status_code == 200
    assert client.get("/v1/models", headers=old).status_code == 401
    assert client.get("/v1/models", headers=new).status_code == 200
    log = client.get(f"{tenant}/audit", headers=operator.headers)
    assert body["secret"].rpartition("_")[2] not in log.text


def ask(client: Client, address: str, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    """A request from `address`, on the application's own loop."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=client.app, client=(address, 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver.local") as opened:
            return await opened.request(method, path, headers=headers)

    answer: httpx.Response = client.blocking_portal.call(send)
    return answer


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions"])
def test_a_key_with_networks_opens_from_there_only(
    client: Client, operator: Operator, tenant: str, path: str
) -> None:
    networks = ["192.0.2.0/24", "2001:db8::/32"]
    key_id, headers = make(client, operator, tenant, allowed_networks=networks)
    method = "POST" if path.endswith("completions") else "GET"
    passed = 400 if method == "POST" else 200  # past the door, refused for its empty body
    for address in ("192.0.2.77", "::ffff:192.0.2.77", "2001:db8::9"):
        assert ask(client, address, method, path, headers).status_code == passed, address
    for address in ("198.51.100.1", "2001:db9::1", "unix"):
        # what a client says of itself changes nothing: no proxy is trusted
        refused = ask(client, address, method, path, {**headers, "x-forwarded-for": "192.0.2.77"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "ip_not_authorized"), address
        assert "192.0.2" not in refused.text
    url = f"{tenant}/keys/{key_id}"
    client.patch(url, json={"allowed_networks": ["198.51.100.1"]}, headers=operator.headers)
    assert ask(client, "192.0.2.77", method, path, headers).status_code == 403
    assert ask(client, "198.51.100.1", method, path, headers).status_code == passed


def test_a_tenants_weight_is_set_by_operators(client: Client, operator: Operator, tenant: str) -> None:
    assert client.get(tenant, headers=operator.headers).json()["share_weight"] == 1
    changed = client.patch(tenant, json={"share_weight": 5}, headers=operator.headers)
    assert changed.json()["share_weight"] == 5
    for weight in (0, 101):
        refused = client.patch(tenant, json={"share_weight": weight}, headers=operator.headers)
        assert refused.status_code == 400


def test_no_key_gets_away_from_the_budget_of_the_one_that_makes_it(
    client: Client, operator: Operator, tenant: str
) -> None:
    mine, headers = make(client, operator, tenant, scopes=["keys:write", "inference"])
    other, _ = make(client, operator, tenant)
    budget = {"budget_month": {"amount": "1.00"}}
    url = f"{tenant}/keys/{mine}/limits"
    assert client.patch(url, json=budget, headers=operator.headers).status_code == 200
    refused = client.post("/v1/keys", json={"name": "free of it"}, headers=headers)
    assert (refused.status_code, refused.json()["error"]["param"]) == (403, "budget_month")
    # nor takes one that is free of it, to which the same budget would be more than it has
    assert client.post(f"/v1/keys/{other}/rotate", json={}, headers=headers).status_code == 404
    assert [one["id"] for one in client.get("/v1/keys", headers=headers).json()["data"]] == [mine]
    rotated = client.post(f"/v1/keys/{mine}/rotate", json={}, headers=headers)
    assert rotated.status_code == 200

    smaller = {"budget_month": {"amount": "0.50"}}
    client.patch(f"{tenant}/keys/{other}/limits", json=smaller, headers=operator.headers)
    assert client.get(f"/v1/keys/{other}", headers=headers).status_code == 200
    client.patch(url, json={"budget_month": {"amount": "1.00", "hard": False}}, headers=operator.headers)
    assert client.post("/v1/keys", json={"name": "only told"}, headers=headers).status_code == 201


@pytest.mark.parametrize("edge", ["9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999Z"])
def test_an_expiry_at_the_end_of_time_is_refused(
    client: Client, operator: Operator, tenant: str, edge: str
) -> None:
    """The last microsecond would come back from the database without a zone, and the key answer 500."""
    key_id, _ = make(client, operator, tenant)
    wanted = {"name": "k", "expires_at": edge}
    made = client.post(f"{tenant}/keys", json=wanted, headers=operator.headers)
    changed = client.patch(f"{tenant}/keys/{key_id}", json={"expires_at": edge}, headers=operator.headers)
    for answer in (made, changed):
        assert (answer.status_code, answer.json()["param"]) == (400, "expires_at")
