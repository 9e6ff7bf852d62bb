"""Every list of the API is paged the same way, and what each filters by, it filters by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient

from gateway.db import Database
from gateway.principal import TenantId
from tests.gateway.conftest import Operator
from tests.gateway.test_foreign_ids import Owner, _owner

Client = TestClient[Any]

NOT_PAGED = {
    "/v1/models": "OpenAI's list, which has no pages: SDKs read it whole; 1,000 adapters, more by `after`",
    "/api/v1/tenants/{tenant}/models": "the same",
    "/v1/usage": "a report with sums over all of it, bounded by its window and refused beyond",
    "/api/v1/tenants/{tenant}/usage": "the same",
    "/v1/usage/shared-adapters": "the same, and at most 10,000 rows",
    "/api/v1/tenants/{tenant}/usage/shared-adapters": "the same",
    "/v1/usage/receipt-keys": "two at most",
    "/api/v1/tenants/{tenant}/usage/receipt-keys": "the same",
    "/v1/limits": "what one key is held to: fifteen at most",
    "/v1/webhooks": "16 at most",
    "/api/v1/tenants/{tenant}/webhooks": "the same",
    "/v1/metrics/requests": "a report in at most 1,500 steps",
    "/api/v1/tenants/{tenant}/metrics/requests": "the same",
    "/api/v1/metrics/requests": "the same",
    "/api/v1/attention": "twenty of a kind at most, the worst first: a look, not a list to walk",
    "/api/v1/placement/moves": "the last that happened: 1,000 are kept, none has a place to go on from",
    "/api/v1/tenants/{tenant}/limits/now": "what a tenant is held to: seven at most",
    "/api/v1/session/providers": "eight at most",
    "/api/v1/audit/export": "a file, streamed",
    "/api/v1/tenants/{tenant}/audit/export": "a file, streamed",
}


def lists(client: Client) -> Iterator[tuple[str, set[str], dict[str, Any]]]:
    """(path, query parameters, properties of the answer) of every GET that answers with a list."""
    document = client.get("/openapi.json").json()
    for path, item in document["paths"].items():
        if "get" not in item:
            continue
        parameters = {each["name"] for each in item["get"].get("parameters", []) if each["in"] == "query"}
        for media in item["get"]["responses"].get("200", {}).get("content", {}).values():
            schema = media.get("schema", {})
            reference = schema.get("$ref", "").rpartition("/")[2]
            schema = document["components"]["schemas"].get(reference, schema)
            properties = schema.get("properties", {})
            if schema.get("type") == "array" or properties.get("data", {}).get("type") == "array":
                yield path, parameters, properties


def test_every_list_is_paged_or_says_why_not(client: Client) -> None:
    found = {path: (parameters, properties) for path, parameters, properties in lists(client)}
    assert len(found) >= 14
    for path, (parameters, properties) in found.items():
        if path in NOT_PAGED:
            continue
        assert {"limit", "cursor"} <= parameters, path
        assert {"object", "data", "has_more", "next_cursor"} <= set(properties), path
    document = client.get("/openapi.json").json()
    assert set(NOT_PAGED) <= set(document["paths"])


@pytest.fixture
async def owner(client: Client, operator: Operator, db: Database, tenant: TenantId) -> Owner:
    return await _owner(client, operator, db, tenant)


async def test_bad_cursors_are_400_in_the_terms_of_their_prefix(
    client: Client, operator: Operator, owner: Owner
) -> None:
    swept = 0
    for path, parameters, _ in lists(client):
        if "cursor" not in parameters:
            continue
        url = re.sub(r"\{(\w+)\}", lambda match: owner.ids[match[1]], path)
        headers = operator.headers if path.startswith("/api/") else owner.headers
        assert client.get(url, headers=headers).status_code == 200, path
        for query in ("cursor=nothing", "cursor=WyJ4Il0", f"cursor={'a' * 513}", "limit=201", "limit=0"):
            answer = client.get(f"{url}?{query}", headers=headers)
            assert answer.status_code == 400, (path, query)
            body = answer.json()
            told = body if path.startswith("/api/") else body["error"]
            assert told["param"] == query.partition("=")[0], (path, query)
        swept += 1
    assert swept >= 12


def walk(client: Client, url: str, headers: dict[str, str], **query: Any) -> list[dict[str, Any]]:
    """All entries, by pages of one."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        asked = {**query, "limit": 1, **({} if cursor is None else {"cursor": cursor})}
        page = client.get(url, params=asked, headers=headers)
        assert page.status_code == 200, page.text
        assert len(page.json()["data"]) <= 1
        found += page.json()["data"]
        cursor = page.json()["next_cursor"]
        assert (cursor is not None) == page.json()["has_more"]
        if cursor is None:
            return found


def test_models_come_whole_or_on_from_the_last(client: Client, owner: Owner) -> None:
    def page(**query: Any) -> tuple[list[str], bool]:
        body = client.get("/v1/models", params=query, headers=owner.headers).json()
        return [model["id"] for model in body["data"]], body["has_more"]

    base = client.app.state.services.catalog.base.name
    assert page() == ([base, owner.adapter], False)
    assert page(limit=1) == ([base], True)
    assert page(limit=1, after=base) == ([owner.adapter], False)
    assert page(after=owner.adapter) == ([], False)
    for query in ({"limit": 0}, {"limit": 1_001}, {"after": "no name"}):
        assert client.get("/v1/models", params=query, headers=owner.headers).status_code == 400


def test_an_account_sees_the_models_that_its_tenants_keys_could_use(client: Client, owner: Owner) -> None:
    seen = client.get(f"/api/v1/tenants/{owner.tenant}/models", headers=owner.admin)
    assert seen.status_code == 200
    assert seen.json() == client.get("/v1/models", headers=owner.headers).json()


async def test_keys_page_and_filter(client: Client, operator: Operator, tenant: TenantId) -> None:
    url = f"/api/v1/tenants/{tenant}/keys"
    made = [
        client.post(url, json={"name": name}, headers=operator.headers).json()["key"]
        for name in ("ci-1", "ci-2", "prod", "100%_x")
    ]
    client.delete(f"{url}/{made[1]['id']}", headers=operator.headers)
    names = [key["name"] for key in walk(client, url, operator.headers)]
    assert names == ["100%_x", "prod", "ci-2", "ci-1"]
    for query, wanted in (
        ({"state": "live"}, ["100%_x", "prod", "ci-1"]),
        ({"state": "revoked"}, ["ci-2"]),
        ({"state": "expired"}, []),
        ({"name_prefix": "ci-"}, ["ci-2", "ci-1"]),
        ({"name_prefix": "100%"}, ["100%_x"]),
        ({"name_prefix": "1%"}, []),
        ({"id_prefix": made[2]["id"][:10]}, ["prod"]),
        ({"since": made[2]["created_at"]}, ["100%_x", "prod"]),
        ({"until": made[2]["created_at"]}, ["ci-2", "ci-1"]),
    ):
        assert [key["name"] for key in walk(client, url, operator.headers, **query)] == wanted, query
    assert client.get(f"{url}?state=lost", headers=operator.headers).status_code == 400


async def test_tenants_page_and_filter(client: Client, operator: Operator) -> None:
    prefix = f"p{uuid4().hex[:8]}"
    made = [
        client.post("/api/v1/tenants", json={"name": f"{prefix}-{n}"}, headers=operator.headers).json()
        for n in range(3)
    ]
    client.patch(f"/api/v1/tenants/{made[1]['id']}", json={"status": "suspended"}, headers=operator.headers)

    def ids(**query: Any) -> list[int]:
        found = walk(client, "/api/v1/tenants", operator.headers, name_prefix=prefix, **query)
        return [[each["id"] for each in made].index(one["id"]) for one in found]

    assert ids() == [0, 1, 2]
    assert ids(status="suspended") == [1]
    assert ids(status="active") == [0, 2]
    assert ids(since=made[1]["created_at"]) == [1, 2]
    assert ids(until=made[1]["created_at"]) == [0]


async def test_a_cursor_is_of_one_tenants_list_only(
    client: Client, operator: Operator, owner: Owner, tenant: TenantId
) -> None:
    url = f"/api/v1/tenants/{tenant}/keys"
    client.post(url, json={"name": "second"}, headers=operator.headers)
    cursor = client.get(f"{url}?limit=1", headers=operator.headers).json()["next_cursor"]
    assert client.get(f"{url}?limit=1&cursor={cursor}", headers=operator.headers).status_code == 200
    other = client.post(
        "/api/v1/tenants", json={"name": f"o{uuid4().hex[:8]}"}, headers=operator.headers
    ).json()
    for path in (f"/api/v1/tenants/{other['id']}/keys", f"{url}", "/api/v1/audit"):
        query = f"cursor={cursor}&state=live" if path == url else f"cursor={cursor}"
        answer = client.get(f"{path}?{query}", headers=operator.headers)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_cursor"), path


async def test_the_audit_log_pages_and_filters(client: Client, operator: Operator, tenant: TenantId) -> None:
    root = f"/api/v1/tenants/{tenant}"
    key = client.post(f"{root}/keys", json={"name": "a"}, headers=operator.headers).json()["key"]
    client.delete(f"{root}/keys/{key['id']}", headers=operator.headers)
    client.patch(root, json={"max_parallel": 3}, headers=operator.headers)

    def actions(**query: Any) -> list[str]:
        own = [event["action"] for event in walk(client, f"{root}/audit", operator.headers, **query)]
        everyones = walk(client, "/api/v1/audit", operator.headers, tenant=str(tenant), **query)
        assert [event["action"] for event in everyones] == own
        return own

    assert actions() == ["tenant.update", "api_key.revoke", "api_key.create"]
    assert actions(action="api_key.") == ["api_key.revoke", "api_key.create"]
    assert actions(action="api_key.create", target=key["id"]) == ["api_key.create"]
    assert actions(actor=f"admin:{operator.email}")[0] == "tenant.update"
    assert actions(actor="admin:nobody@example.com") == []
    assert actions(until="2020-01-01T00:00:00Z") == []
    assert len(actions(since="2020-01-01T00:00:00")) == 3


async def test_chains_are_verified_kept_and_exported_over_http(
    client: Client, operator: Operator, tenant: TenantId
) -> None:
    root = f"/api/v1/tenants/{tenant}"
    for n in range(3):
        client.patch(root, json={"max_parallel": n + 1}, headers=operator.headers)
    verdict = client.get(f"{root}/audit/verify", headers=operator.headers).json()
    assert (verdict["intact"], verdict["complete"], verdict["checked"]) == (True, True, 3)
    heads = {head["chain"]: head for head in walk(client, "/api/v1/audit/heads", operator.headers)}
    assert heads[str(tenant)] == verdict["head"]
    lines = client.get(f"{root}/audit/export", headers=operator.headers)
    assert lines.headers["content-type"].startswith("application/jsonl")
    assert len(lines.text.splitlines()) == 3
    kept = {"kept_seq": 4, "kept_hash": verdict["head"]["hash"]}
    told = client.get(f"{root}/audit/verify", params=kept, headers=operator.headers).json()
    assert told["broken"] == {"seq": 4, "event": None, "reason": "truncated"}
    assert client.get(f"{root}/audit/verify?kept_seq=1", headers=operator.headers).status_code == 400
    assert client.get("/api/v1/audit/verify", headers=operator.headers).json()["intact"] is True


EDGES = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999Z")


def test_a_moment_at_the_edges_of_time_is_a_400_for_every_list(
    client: Client, operator: Operator, owner: Owner
) -> None:
    """Python's datetimes, asyncpg's and PostgreSQL's end at different places."""
    filtered = [path for path, given, _ in lists(client) if "since" in given]
    assert len(filtered) >= 8
    for path in filtered:
        headers = operator.headers if path.startswith("/api/") else owner.headers
        for edge in EDGES:
            url = path.format(tenant=owner.tenant)
            answer = client.get(url, params={"since": edge}, headers=headers)
            assert answer.status_code == 400, (path, edge, answer.text)
            assert answer.json().get("error", answer.json())["param"] == "since", (path, edge)
