"""Operators at work: tenants and keys from creation to revocation, all of it in the log."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from litestar.testing import AsyncTestClient

from tests.gateway.conftest import Operator

Client = AsyncTestClient[Any]


async def made(client: Client, operator: Operator, **fields: object) -> dict[str, Any]:
    body = {"name": f"t-{uuid4().hex[:8]}", **fields}
    answer = await client.post("/api/v1/tenants", json=body, headers=operator.headers)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_tenant_is_made_listed_and_changed(client: Client, operator: Operator) -> None:
    tenant = await made(client, operator, tokens_per_minute=1000)
    url = f"/api/v1/tenants/{tenant['id']}"
    assert (await client.get(url, headers=operator.headers)).json() == tenant

    listed = await client.get("/api/v1/tenants?limit=200", headers=operator.headers)
    assert tenant["id"] in {one["id"] for one in listed.json()["data"]}

    changed = await client.patch(
        url, json={"tokens_per_minute": None, "max_parallel": 4}, headers=operator.headers
    )
    assert changed.status_code == 200
    assert (changed.json()["tokens_per_minute"], changed.json()["max_parallel"]) == (None, 4)
    assert changed.json()["epoch"] == tenant["epoch"] + 1
    assert "salt" not in changed.text

    log = (await client.get(f"{url}/audit", headers=operator.headers)).json()["data"]
    assert [event["action"] for event in log] == ["tenant.update", "tenant.create"]
    assert {event["actor"] for event in log} == {f"admin:{operator.email}"}
    assert log[0]["details"] == {"tokens_per_minute": None, "max_parallel": 4}


async def test_lists_are_paged(client: Client, operator: Operator) -> None:
    first = await made(client, operator)
    second = await made(client, operator)
    page = await client.get(
        "/api/v1/tenants", params={"after": first["id"], "limit": 1}, headers=operator.headers
    )
    assert [one["id"] for one in page.json()["data"]] == [second["id"]]
    assert page.json()["has_more"] is False


async def test_what_can_not_be_is_refused(client: Client, operator: Operator) -> None:
    tenant = await made(client, operator)
    url = f"/api/v1/tenants/{tenant['id']}"
    attempts = [
        (await client.post("/api/v1/tenants", json={"name": tenant["name"]}, headers=operator.headers), 409),
        (await client.post("/api/v1/tenants", json={"name": "No Spaces"}, headers=operator.headers), 400),
        (await client.patch(url, json={}, headers=operator.headers), 400),
        (await client.patch(url, json={"max_parallel": 0}, headers=operator.headers), 400),
        (await client.patch(url, json={"status": "deleted"}, headers=operator.headers), 400),
        (await client.get(f"/api/v1/tenants/{uuid4()}", headers=operator.headers), 404),
        (await client.get("/api/v1/tenants/not-a-uuid", headers=operator.headers), 404),
        (await client.get("/api/v1/tenants?limit=0", headers=operator.headers), 400),
        (await client.get(f"/api/v1/tenants/{uuid4()}/keys", headers=operator.headers), 404),
    ]
    assert [answer.status_code for answer, _ in attempts] == [wanted for _, wanted in attempts]
    assert all(a.headers["content-type"] == "application/problem+json" for a, _ in attempts)


async def test_a_key_works_until_it_is_revoked(client: Client, operator: Operator) -> None:
    tenant = await made(client, operator)
    url = f"/api/v1/tenants/{tenant['id']}/keys"
    created = await client.post(url, json={"name": "ci"}, headers=operator.headers)
    assert created.status_code == 201
    key, secret = created.json()["key"], created.json()["secret"]
    assert key["scopes"] == ["inference"]

    mine = {"authorization": f"Bearer {secret}"}
    assert (await client.get("/v1/models", headers=mine)).status_code == 200
    assert (await client.get("/v1/adapters", headers=mine)).status_code == 403
    assert (await client.get("/api/v1/tenants", headers=mine)).status_code == 401

    listed = await client.get(url, headers=operator.headers)
    assert [one["id"] for one in listed.json()["data"]] == [key["id"]]
    assert secret not in listed.text

    revoked = await client.delete(f"{url}/{key['id']}", headers=operator.headers)
    assert revoked.status_code == 200
    assert revoked.json()["revoked_at"] is not None
    assert (await client.get("/v1/models", headers=mine)).status_code == 401


async def test_a_suspended_tenant_hears_so(client: Client, operator: Operator) -> None:
    tenant = await made(client, operator)
    url = f"/api/v1/tenants/{tenant['id']}"
    created = await client.post(f"{url}/keys", json={"name": "ci"}, headers=operator.headers)
    mine = {"authorization": f"Bearer {created.json()['secret']}"}
    assert (await client.get("/v1/models", headers=mine)).status_code == 200
    await client.patch(url, json={"status": "suspended"}, headers=operator.headers)
    answer = await client.get("/v1/models", headers=mine)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "tenant_suspended")
