"""Members of tenants: what they are given, what it opens, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient
from redis.asyncio import Redis
from sqlalchemy import text

from gateway.db import Database
from tests.gateway.conftest import Operator

Client = TestClient[Any]
PASSWORD = "correct horse battery"


class Room:
    """An operator at work on the members of some tenants."""

    def __init__(self, client: Client, operator: Operator) -> None:
        self.client = client
        self.headers = operator.headers

    def tenant(self) -> str:
        answer = self.client.post("/api/v1/tenants", json={"name": uuid4().hex}, headers=self.headers)
        return f"/api/v1/tenants/{answer.json()['id']}"

    def add(self, tenant: str, role: str, email: str | None = None) -> Any:
        wanted = {"email": email or f"{uuid4().hex}@example.com", "role": role}
        answer = self.client.post(f"{tenant}/members", json=wanted, headers=self.headers)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def token(self, tenant: str, member: str, **fields: Any) -> Any:
        url = f"{tenant}/members/{member}/tokens"
        answer = self.client.post(url, json={"name": "t", **fields}, headers=self.headers)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def bearer(self, tenant: str, role: str, email: str | None = None) -> dict[str, str]:
        token = self.token(tenant, self.add(tenant, role, email)["id"])
        return {"authorization": f"Bearer {token['secret']}"}


@pytest.fixture
def room(client: Client, operator: Operator) -> Room:
    return Room(client, operator)


@pytest.fixture
async def log_in(client: Client, redis: Redis) -> Callable[[str], dict[str, str]]:
    """Logs an email in; the headers that then go with a change."""
    async for key in redis.scan_iter("{motet-log-in}:*"):
        await redis.delete(key)

    def enter(email: str) -> dict[str, str]:
        answer = client.post("/api/v1/session", json={"email": email, "password": PASSWORD})
        assert answer.status_code == 201, answer.text
        assert answer.json()["admin"]["is_operator"] is False
        return {"x-csrf-token": answer.json()["csrf_token"]}

    return enter


def test_members_are_added_listed_changed_and_removed(room: Room) -> None:
    client, tenant = room.client, room.tenant()
    made = [room.add(tenant, role) for role in ("viewer", "billing", "developer")]
    url = f"{tenant}/members"
    page = client.get(url, params={"limit": 2}, headers=room.headers).json()
    assert ([one["id"] for one in page["data"]], page["has_more"]) == ([one["id"] for one in made[:2]], True)
    rest = client.get(url, params={"cursor": page["next_cursor"]}, headers=room.headers).json()
    assert ([one["id"] for one in rest["data"]], rest["has_more"]) == ([made[2]["id"]], False)
    assert client.get(f"{url}/{made[0]['id']}", headers=room.headers).json() == made[0]

    again = client.post(url, json={"email": made[0]["email"].upper(), "role": "viewer"}, headers=room.headers)
    assert again.status_code == 409
    changed = client.patch(f"{url}/{made[0]['id']}", json={"role": "tenant_admin"}, headers=room.headers)
    assert changed.json()["role"] == "tenant_admin"
    gone = client.delete(f"{url}/{made[0]['id']}", headers=room.headers)
    assert gone.status_code == 200
    assert client.get(f"{url}/{made[0]['id']}", headers=room.headers).status_code == 404

    log = client.get(f"{tenant}/audit", headers=room.headers).json()["data"]
    assert [event["action"] for event in log][:3] == ["member.remove", "member.update", "member.add"]
    for wanted in ({"email": "x", "role": "viewer"}, {"email": "a@b.c", "role": "operator"}):
        assert client.post(url, json=wanted, headers=room.headers).status_code == 400


def test_an_email_with_an_account_is_added_like_one_without(room: Room) -> None:
    """Else a tenant could find out who is a customer elsewhere."""
    email = f"{uuid4().hex}@example.com"
    room.add(room.tenant(), "viewer", email)
    tenant = room.tenant()
    known, new = room.add(tenant, "viewer", email), room.add(tenant, "viewer")
    assert {name for name in known if known[name] == new[name]} == {"tenant", "role", "can"}
    assert list(known) == list(new)


def test_a_role_holds_from_the_next_request_on(room: Room) -> None:
    client, tenant = room.client, room.tenant()
    member = room.add(tenant, "viewer")["id"]
    mine = {"authorization": f"Bearer {room.token(tenant, member)['secret']}"}
    assert client.get(f"{tenant}/adapters", headers=mine).status_code == 200
    assert client.post(f"{tenant}/keys", json={"name": "k"}, headers=mine).status_code == 403
    client.patch(f"{tenant}/members/{member}", json={"role": "developer"}, headers=room.headers)
    assert client.post(f"{tenant}/keys", json={"name": "k"}, headers=mine).status_code == 201
    client.delete(f"{tenant}/members/{member}", headers=room.headers)
    assert client.get(f"{tenant}/adapters", headers=mine).status_code == 401


def test_a_tokens_expiry_lies_within_time(room: Room) -> None:
    tenant = room.tenant()
    url = f"{tenant}/members/{room.add(tenant, 'viewer')['id']}/tokens"
    wanted = {"name": "t", "expires_at": "9999-12-31T23:59:59.999999Z"}
    refused = room.client.post(url, json=wanted, headers=room.headers)
    assert (refused.status_code, refused.json()["param"]) == (400, "expires_at")


def test_a_token_ends_when_it_is_revoked_or_expires(room: Room) -> None:
    client, tenant = room.client, room.tenant()
    member = room.add(tenant, "viewer")["id"]
    url = f"{tenant}/members/{member}/tokens"
    token = room.token(tenant, member)
    mine = {"authorization": f"Bearer {token['secret']}"}
    assert client.get(tenant, headers=mine).status_code == 200
    listed = client.get(url, headers=room.headers)
    assert listed.json()["data"] == [token["token"]]
    assert token["secret"] not in listed.text
    assert client.delete(f"{url}/{token['token']['id']}", headers=room.headers).status_code == 200
    assert client.get(tenant, headers=mine).status_code == 401
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    late = client.post(url, json={"name": "t", "expires_at": past}, headers=room.headers)
    assert late.status_code == 400


def test_a_members_token_of_an_operator_is_good_for_that_membership_only(
    room: Room, operator: Operator
) -> None:
    client, tenant, other = room.client, room.tenant(), room.tenant()
    mine = room.bearer(tenant, "viewer", operator.email)
    assert client.get(tenant, headers=mine).status_code == 200
    assert client.get(other, headers=mine).status_code == 404
    assert client.get("/api/v1/audit", headers=mine).status_code == 403
    assert client.post(f"{tenant}/keys", json={"name": "k"}, headers=mine).status_code == 403
    listed = client.get("/api/v1/tenants", headers=mine).json()["data"]
    assert [f"/api/v1/tenants/{one['id']}" for one in listed] == [tenant]
    assert client.get(other, headers=operator.headers).status_code == 200


def test_the_log_tells_a_members_token_from_the_member(room: Room, operator: Operator) -> None:
    """A tenant's administrator gives them out, so what is done with one may be anybody's doing."""
    client, tenant = room.client, room.tenant()
    member = room.add(tenant, "tenant_admin", operator.email)["id"]
    given = room.token(tenant, member)
    for headers in ({"authorization": f"Bearer {given['secret']}"}, room.headers):
        assert client.post(f"{tenant}/keys", json={"name": "k"}, headers=headers).status_code == 201
    log = client.get(f"{tenant}/audit", params={"action": "api_key."}, headers=room.headers).json()["data"]
    assert [one["actor"] for one in log] == [f"admin:{operator.email}"] * 2
    assert [one["details"].get("by_token") for one in log] == [None, given["token"]["id"]]


def test_an_account_is_in_each_of_its_tenants_what_it_is_there(
    room: Room, log_in: Callable[[str], dict[str, str]]
) -> None:
    client, first, second, foreign = room.client, room.tenant(), room.tenant(), room.tenant()
    email = f"{uuid4().hex}@example.com"
    member = room.add(first, "tenant_admin", email)["id"]
    room.add(second, "billing", email)
    refused = client.post("/api/v1/session", json={"email": email, "password": PASSWORD})
    assert refused.status_code == 401  # it has no password yet
    put = client.put(f"{first}/members/{member}/password", json={"password": PASSWORD}, headers=room.headers)
    assert put.status_code == 204
    csrf = log_in(email)
    listed = client.get("/api/v1/tenants").json()["data"]
    assert {f"/api/v1/tenants/{one['id']}" for one in listed} == {first, second}
    assert client.get(f"{second}/billing/periods").status_code == 200
    assert client.get(f"{second}/adapters").status_code == 403
    assert client.get(f"{first}/adapters").status_code == 200
    assert client.post(f"{first}/keys", json={"name": "k"}, headers=csrf).status_code == 201
    assert client.get(foreign).status_code == 404
    assert client.get("/api/v1/price-books").status_code == 403
    url = f"{first}/members/{member}/password"
    own = client.put(url, json={"password": PASSWORD}, headers=csrf)
    assert own.status_code == 403  # operators only: it opens the other tenant too
    client.put(url, json={"password": "another horse battery"}, headers=room.headers)
    assert client.get(first).status_code == 401  # sessions end with the password


def test_an_operators_password_is_no_business_of_a_tenants(room: Room, operator: Operator) -> None:
    tenant = room.tenant()
    member = room.add(tenant, "viewer", operator.email)["id"]
    put = room.client.put(
        f"{tenant}/members/{member}/password", json={"password": PASSWORD}, headers=room.headers
    )
    assert (put.status_code, put.json()["code"]) == (409, "operator_account")


def test_a_developer_gives_keys_what_a_developer_has(room: Room) -> None:
    client, tenant = room.client, room.tenant()
    mine = room.bearer(tenant, "developer")
    made = client.post(f"{tenant}/keys", json={"name": "k", "scopes": ["adapters:write"]}, headers=mine)
    assert made.status_code == 201
    for scope in ("usage:read", "keys:write"):
        wanted = {"name": "k", "scopes": [scope]}
        refused = client.post(f"{tenant}/keys", json=wanted, headers=mine)
        assert (refused.status_code, refused.json()["param"]) == (403, "scopes")
    strong = client.post(f"{tenant}/keys", json={"name": "k", "scopes": ["keys:write"]}, headers=room.headers)
    url = f"{tenant}/keys/{strong.json()['key']['id']}"
    assert client.get(url, headers=mine).status_code == 404
    assert client.post(f"{url}/rotate", json={}, headers=mine).status_code == 404
    assert client.get(f"{url}/limits", headers=mine).status_code == 404
    weak = f"{tenant}/keys/{made.json()['key']['id']}/limits"
    assert client.get(weak, headers=mine).status_code == 200
    listed = client.get(f"{tenant}/keys", headers=mine).json()["data"]
    assert [one["id"] for one in listed] == [made.json()["key"]["id"]]


async def test_no_secret_of_a_token_is_kept(room: Room, db: Database) -> None:
    tenant = room.tenant()
    secret = room.token(tenant, room.add(tenant, "viewer")["id"])["secret"].rpartition("_")[2]
    async with db.system_reader() as session:
        rows = await session.execute(
            text("SELECT t::text FROM admin_tokens t UNION ALL SELECT a::text FROM audit_events a")
        )
        assert not [row for (row,) in rows if secret in row]
