"""The application as a whole: every route is documented, closed unless it says otherwise, and fails in
its own terms."""

from __future__ import annotations

import asyncio
import re
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

import migrations
from deploy.local.services import DatabaseUrls
from gateway import openapi, timed_request
from migrations import async_url
from tests.gateway.conftest import Operator

PUBLIC = {
    ("/api/v1/replica-registration", "put"),
    ("/admin", "get"),
    ("/admin/assets/{name}", "get"),
    ("/admin/{rest}", "get"),
    ("/api/v1/session", "post"),
    ("/api/v1/session/oidc/{provider}", "get"),
    ("/api/v1/session/oidc/{provider}/callback", "get"),
    ("/api/v1/session/providers", "get"),
    ("/healthz", "get"),
    ("/metrics", "get"),
    ("/openapi.json", "get"),
    ("/readyz", "get"),
}
Client = TestClient[Any]


def operations(client: Client) -> list[tuple[str, str, bool]]:
    return openapi.operations(cast(Litestar, client.app))


def concrete(path: str) -> str:
    values = {
        "tenant": str(uuid4()),
        "number": "1",
        "other": "2",
        "version": "1",
        "request_id": str(uuid4()),
        "endpoint_id": str(uuid4()),
        "delivery_id": str(uuid4()),
        "check_id": str(uuid4()),
        "replica": str(uuid4()),
        "member_id": str(uuid4()),
        "rollout_id": str(uuid4()),
        "recipient": str(uuid4()),
        "upload_id": str(uuid4()),
    }
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], "x"), path)


def test_the_document_names_every_route_and_no_other(client: Client) -> None:
    document = (client.get("/openapi.json")).json()
    named = {(path, method) for path, item in document["paths"].items() for method in item}
    assert named == {(path, method) for path, method, _ in operations(client)}
    assert ("/v1/chat/completions", "post") in named
    assert document["openapi"].startswith("3.1")


def test_public_routes_are_these(client: Client) -> None:
    assert {(path, method) for path, method, public in operations(client) if public} == PUBLIC


def test_every_other_route_refuses_a_stranger(client: Client) -> None:
    for path, method, public in operations(client):
        if public:
            continue
        answer = client.request(method.upper(), concrete(path))
        assert answer.status_code == 401, (method, path)
        if path.startswith("/api/"):
            assert answer.headers["content-type"] == "application/problem+json"
            assert method == "head" or answer.json()["status"] == 401
        else:
            assert method == "head" or answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("spelled", ["/%61pi/v1/", "/api%2Fv1/", "//api/v1/", "/api//v1/"])
def test_routes_for_accounts_have_one_spelling(client: Client, operator: Operator, spelled: str) -> None:
    """A proxy that lets nobody outside reach /api/ compares what was written."""
    assert client.get("/api/v1/tenants", headers=operator.headers).status_code == 200
    for path in ("tenants", "session"):
        answer = client.get(f"http://testserver.local{spelled}{path}", headers=operator.headers)
        assert answer.status_code == 404, answer.text


def test_documented_statuses_have_the_error_of_their_prefix(client: Client) -> None:
    document = (client.get("/openapi.json")).json()
    for path, item in document["paths"].items():
        wanted = "application/problem+json" if path.startswith("/api/") else "application/json"
        for method, operation in item.items():
            refusals = {
                status: answer for status, answer in operation["responses"].items() if status >= "400"
            }
            assert {"400", "405", "500", "503"} <= set(refusals), (method, path)
            assert all(list(answer["content"]) == [wanted] for answer in refusals.values())


@pytest.mark.parametrize(
    ("path", "has_error"), [("/v1/nothing", True), ("/api/v1/nothing", False), ("/", True)]
)
def test_unknown_paths_are_404_in_the_terms_of_their_prefix(
    client: Client, path: str, has_error: bool
) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert ("error" in answer.json()) == has_error


def test_a_wrong_method_is_405_with_what_is_allowed(client: Client) -> None:
    for path, allowed in (("/v1/chat/completions", "POST"), ("/healthz", "GET")):
        answer = client.delete(path)
        assert answer.status_code == 405
        assert allowed in answer.headers["allow"]
        assert answer.json()["error"]["code"] == "method_not_allowed"


def test_bad_json_and_wrong_fields_are_problems_that_name_the_field(
    client: Client, operator: Operator
) -> None:
    for body, param in (
        (b"{", None),
        (b'{"name": 3}', "name"),
        (b'{"name": "a", "x": 1}', "x"),
        (b"{}", "name"),
    ):
        answer = client.post("/api/v1/tenants", content=body, headers=operator.headers)
        assert answer.status_code == 400, body
        assert answer.json().get("param") == param, (body, answer.json())


def test_a_body_over_the_limit_is_413(client: Client, operator: Operator) -> None:
    body = b'{"name": "' + b"x" * (1 << 20) + b'"}'
    answer = client.post("/api/v1/tenants", content=body, headers=operator.headers)
    assert answer.status_code == 413


def test_a_nul_character_is_the_clients_fault_wherever_it_stands(client: Client, operator: Operator) -> None:
    """PostgreSQL takes it in no text."""
    url = f"/api/v1/tenants/{_new_tenant(client, operator)}/keys"
    for answer in (
        client.post("/api/v1/session", json={"email": "a\0b@example.com", "password": "x"}),
        client.post(url, json={"name": "a\0"}, headers=operator.headers),
        client.post(url, json={"name": "a", "allowed_models": ["\0"]}, headers=operator.headers),
    ):
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_value"), answer.text


def _new_tenant(client: Client, operator: Operator) -> str:
    made = client.post("/api/v1/tenants", json={"name": uuid4().hex}, headers=operator.headers)
    return str(made.json()["id"])


async def test_a_body_that_does_not_come_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_request, "BODY_S", 0.05)
    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/api/v1/session", "raw_path": b"/api/v1/session",
        "query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1",
        "headers": [(b"content-type", b"application/json")], "client": ("127.0.0.1", 1), "server": ("x", 80),
        "asgi": {"version": "3.0", "spec_version": "2.3"}, "state": {},
    }  # fmt: skip
    told: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Any) -> None:
        told.append(message)

    async with asyncio.timeout(5):
        await client.app(scope, receive, send)
    assert told[0]["status"] == 408


def test_every_answer_has_an_id_and_the_security_headers(client: Client) -> None:
    for path in ("/healthz", "/nothing"):
        answer = client.get(path, headers={"x-request-id": "mine"})
        assert UUID(answer.headers["x-request-id"]).version == 7
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"


def test_ready_says_what_is_wrong(client: Client) -> None:
    shallow = client.get("/readyz")
    assert (shallow.status_code, shallow.json()["ready"]) == (200, True)
    deep = client.get("/readyz?deep=1")  # no replica stands behind this gateway
    assert deep.status_code == 503
    assert deep.json()["checks"]["database"] == "ok"
    assert deep.json()["checks"]["chat"] != "ok"


async def test_a_database_at_another_revision_is_not_ready(client: Client, database: DatabaseUrls) -> None:
    owner = create_async_engine(async_url(database.owner))
    async with owner.begin() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    try:
        answer = await asyncio.to_thread(client.get, "/readyz")
    finally:
        async with owner.begin() as connection:
            await connection.execute(
                text("UPDATE alembic_version SET version_num = :head"), {"head": migrations.head()}
            )
        await owner.dispose()
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"].startswith("The database is at revision 0001")


def test_metrics_count_requests_by_route_and_never_by_path(client: Client) -> None:
    client.get("/v1/some-path-that-a-client-made-up")
    text = (client.get("/metrics")).text
    assert 'motet_http_requests_total{method="GET",route="unmatched",status="404"}' in text
    assert "made-up" not in text
