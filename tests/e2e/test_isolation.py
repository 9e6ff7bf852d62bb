"""What is acme's does not exist for globex: not in lists, not by name, not by version."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import client_of

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}


def ask(client: httpx.Client, model: str) -> httpx.Response:
    return client.post("/v1/chat/completions", json={**CHAT, "model": model})


def test_each_tenant_lists_its_own_adapters_only(acme: httpx.Client, globex: httpx.Client) -> None:
    def names(client: httpx.Client, path: str) -> set[str]:
        return {entry["id"] for entry in client.get(path).json()["data"]}

    assert {"pirate", "sentiment-json"} <= names(acme, "/v1/models")
    assert not {"pirate", "sentiment-json"} & names(globex, "/v1/models")
    assert {"shout", "triage"} <= names(globex, "/v1/adapters")
    assert not {"shout", "triage"} & names(acme, "/v1/adapters")


@pytest.mark.parametrize("model", ["{}", "{}@1", "{}@live", "acme/{}", "acme/{}@1"])
def test_a_foreign_adapter_answers_byte_for_byte_like_an_unknown_one(
    globex: httpx.Client, model: str
) -> None:
    foreign, unknown = ask(globex, model.format("pirate")), ask(globex, model.format("nobody"))
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.content.replace(b"pirate", b"nobody") == unknown.content
    assert _shape(foreign) == _shape(unknown)


@pytest.mark.parametrize(
    "path", ["/v1/models/{}", "/v1/models/{}@1", "/v1/adapters/{}", "/v1/adapters/{}/versions/1"]
)
def test_a_foreign_adapter_can_not_be_read(globex: httpx.Client, path: str) -> None:
    foreign, unknown = globex.get(path.format("pirate")), globex.get(path.format("nobody"))
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.content.replace(b"pirate", b"nobody") == unknown.content


def test_a_foreign_adapter_can_not_be_deleted(acme: httpx.Client, globex: httpx.Client) -> None:
    for path in ("/v1/adapters/pirate", "/v1/adapters/pirate/versions/1"):
        assert globex.delete(path).status_code == 404
    assert acme.get("/v1/adapters/pirate/versions/1").json()["state"] == "ready"
    assert ask(acme, "pirate").status_code == 200


def test_a_tenants_key_opens_no_operators_route(acme: httpx.Client, tenant_ids: dict[str, str]) -> None:
    for path in (
        "/api/v1/tenants",
        f"/api/v1/tenants/{tenant_ids['acme']}",
        f"/api/v1/tenants/{tenant_ids['globex']}/adapters",
        f"/api/v1/tenants/{tenant_ids['acme']}/keys",
    ):
        answer = acme.get(path)
        assert answer.status_code == 401
        assert answer.headers["content-type"].startswith("application/problem+json")


def test_an_operator_sees_each_tenants_adapters_by_the_same_handlers(
    admin: httpx.Client, acme: httpx.Client, tenant_ids: dict[str, str]
) -> None:
    seen = admin.get(f"/api/v1/tenants/{tenant_ids['acme']}/adapters/pirate/versions/1")
    assert seen.json() == acme.get("/v1/adapters/pirate/versions/1").json()


@pytest.mark.parametrize("end", ["revoke", "rotate"])
def test_a_key_that_ended_is_refused_by_every_worker(
    admin: httpx.Client, base_url: str, tenant_ids: dict[str, str], end: str
) -> None:
    """On connections that each worker has open, by its cache warm: the next request is refused."""
    path = f"/api/v1/tenants/{tenant_ids['acme']}/keys"
    made = admin.post(path, json={"name": end}).json()
    with ExitStack() as opened:
        clients = [opened.enter_context(client_of(base_url, made["secret"])) for _ in range(16)]
        for client in clients:
            assert client.get("/v1/models").status_code == 200
            assert ask(client, "nobody").status_code == 404
        if end == "revoke":
            assert admin.delete(f"{path}/{made['key']['id']}").status_code == 200
        else:
            rotated = admin.post(f"{path}/{made['key']['id']}/rotate", json={"overlap_s": 0})
            assert rotated.status_code == 200
        for client in clients:
            assert client.get("/v1/models").status_code == 401
            assert ask(client, "nobody").status_code == 401


def _shape(answer: httpx.Response) -> dict[str, Any]:
    """Headers that could tell one refusal from the other."""
    changing = (
        "x-request-id",
        "date",
        "content-length",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-reset-requests",
    )
    return {name: value for name, value in answer.headers.items() if name not in changing}
