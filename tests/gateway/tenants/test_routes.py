"""Operators at work: tenants and keys from creation to revocation, all of it in the log."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient

from tests.gateway.conftest import Operator

Client = TestClient[Any]
NOWHERE = {"name": "nowhere", "reporting_zone": "Mars/Olympus"}


def made(client: Client, operator: Operator, **fields: object) -> dict[str, Any]:
    body = {"name": f"t-{uuid4().hex[:8]}", **fields}
    answer = client.post("/api/v1/tenants", json=body, headers=operator.headers)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_who_loses_a_role_while_a_list_is_read_is_not_shown_that_tenant(
    client: Client, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(client, operator)

    async def none_any_more(*_: object) -> dict[Any, Any]:
        return {}

    monkeypatch.setattr(client.app.state.services.members, "roles_of", none_any_more)
    listed = client.get("/api/v1/tenants", headers=operator.headers)
    assert (listed.status_code, listed.json()["data"]) == (200, [])


def test_a_tenant_is_made_listed_and_changed(client: Client, operator: Operator) -> None:
    tenant = made(client, operator, tokens_per_minute=1000)
    url = f"/api/v1/tenants/{tenant['id']}"
    assert (client.get(url, headers=operator.headers)).json() == tenant

    listed = client.get(f"/api/v1/tenants?name_prefix={tenant['name']}", headers=operator.headers)
    assert tenant["id"] in {one["id"] for one in listed.json()["data"]}

    changed = client.patch(url, json={"tokens_per_minute": None, "max_parallel": 4}, headers=operator.headers)
    assert changed.status_code == 200
    assert (changed.json()["tokens_per_minute"], changed.json()["max_parallel"]) == (None, 4)
    assert changed.json()["epoch"] == tenant["epoch"] + 1
    assert "salt" not in changed.text

    log = (client.get(f"{url}/audit", headers=operator.headers)).json()["data"]
    assert [event["action"] for event in log] == ["tenant.update", "tenant.create"]
    assert {event["actor"] for event in log} == {f"admin:{operator.email}"}
    assert log[0]["details"] == {"tokens_per_minute": None, "max_parallel": 4}


def test_a_tenants_days_are_those_of_its_zone(client: Client, operator: Operator) -> None:
    tenant = made(client, operator, reporting_zone="Asia/Kolkata")
    url = f"/api/v1/tenants/{tenant['id']}"
    told = client.get(f"{url}/usage", headers=operator.headers).json()
    assert (tenant["reporting_zone"], told["zone"]) == ("Asia/Kolkata", "Asia/Kolkata")
    client.patch(url, json={"reporting_zone": "Europe/Vienna"}, headers=operator.headers)
    for path in ("usage", "usage/summary", "usage/shared-adapters"):
        assert client.get(f"{url}/{path}", headers=operator.headers).json()["zone"] == "Europe/Vienna"
    assert made(client, operator)["reporting_zone"] == "UTC"


def test_lists_are_paged(client: Client, operator: Operator) -> None:
    first = made(client, operator)
    second = made(client, operator)
    page = client.get("/api/v1/tenants", params={"after": first["id"], "limit": 1}, headers=operator.headers)
    assert [one["id"] for one in page.json()["data"]] == [second["id"]]
    assert page.json()["has_more"] is False


def test_what_can_not_be_is_refused(client: Client, operator: Operator) -> None:
    tenant = made(client, operator)
    url = f"/api/v1/tenants/{tenant['id']}"
    attempts = [
        (client.post("/api/v1/tenants", json={"name": tenant["name"]}, headers=operator.headers), 409),
        (client.post("/api/v1/tenants", json={"name": "No Spaces"}, headers=operator.headers), 400),
        (client.patch(url, json={}, headers=operator.headers), 400),
        (client.patch(url, json={"max_parallel": 0}, headers=operator.headers), 400),
        (client.patch(url, json={"status": "deleted"}, headers=operator.headers), 400),
        (client.patch(url, json={"reporting_zone": "+02:00"}, headers=operator.headers), 400),
        (client.post("/api/v1/tenants", json=NOWHERE, headers=operator.headers), 400),
        (client.get(f"/api/v1/tenants/{uuid4()}", headers=operator.headers), 404),
        (client.get("/api/v1/tenants/not-a-uuid", headers=operator.headers), 404),
        (client.get("/api/v1/tenants?limit=0", headers=operator.headers), 400),
        (client.get(f"/api/v1/tenants/{uuid4()}/keys", headers=operator.headers), 404),
    ]
    assert [answer.status_code for answer, _ in attempts] == [wanted for _, wanted in attempts]
    assert all(a.headers["content-type"] == "application/problem+json" for a, _ in attempts)


def test_a_key_works_until_it_is_revoked(client: Client, operator: Operator) -> None:
    tenant = made(client, operator)
    url = f"/api/v1/tenants/{tenant['id']}/keys"
    created = client.post(url, json={"name": "ci"}, headers=operator.headers)
    assert created.status_code == 201
    key, secret = created.json()["key"], created.json()["secret"]
    assert key["scopes"] == ["inference"]

    mine = {"authorization": f"Bearer {secret}"}
    assert (client.get("/v1/models", headers=mine)).status_code == 200
    assert (client.get("/v1/adapters", headers=mine)).status_code == 403
    assert (client.get("/api/v1/tenants", headers=mine)).status_code == 401

    listed = client.get(url, headers=operator.headers)
    assert [one["id"] for one in listed.json()["data"]] == [key["id"]]
    assert secret not in listed.text

    revoked = client.delete(f"{url}/{key['id']}", headers=operator.headers)
    assert revoked.status_code == 200
    assert revoked.json()["revoked_at"] is not None
    assert (client.get("/v1/models", headers=mine)).status_code == 401


def test_a_suspended_tenant_hears_so(client: Client, operator: Operator) -> None:
    tenant = made(client, operator)
    url = f"/api/v1/tenants/{tenant['id']}"
    created = client.post(f"{url}/keys", json={"name": "ci"}, headers=operator.headers)
    mine = {"authorization": f"Bearer {created.json()['secret']}"}
    assert (client.get("/v1/models", headers=mine)).status_code == 200
    client.patch(url, json={"status": "suspended"}, headers=operator.headers)
    answer = client.get("/v1/models", headers=mine)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "tenant_suspended")


def test_a_reason_lasts_as_long_as_the_suspension(client: Client, operator: Operator) -> None:
    url = f"/api/v1/tenants/{made(client, operator)['id']}"

    def post(verb: str, **body: str) -> Any:
        return client.post(f"{url}/{verb}", json=body, headers=operator.headers).json()

    assert post("suspend", reason="unpaid")["suspended_for"] == "unpaid"
    changed = client.patch(url, json={"status": "active"}, headers=operator.headers).json()
    assert (changed["status"], changed["suspended_for"]) == ("active", None)
    post("suspend", reason="again")
    assert post("resume")["suspended_for"] is None
    log = client.get(f"{url}/audit?action=tenant.s", headers=operator.headers).json()["data"]
    assert [event["details"] for event in log] == [{"reason": "again"}, {"reason": "unpaid"}]
