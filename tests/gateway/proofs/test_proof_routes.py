"""Uploads and proofs over HTTP, of a gateway that has no replica: nothing becomes ready there."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from uuid import uuid4

import pytest
from litestar.testing import TestClient

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from gateway.catalog.answering import preferred_wait_s
from tests.gateway.conftest import Operator

Client = TestClient[Any]


@pytest.fixture(scope="session")
def folder(demo_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = BaseSpec.from_dir(demo_model_dir, "base")
    recipe = Recipe(7, rank=2, layers=[1], targets=["q_proj"])
    return write_adapter(tmp_path_factory.mktemp("routes"), base, recipe)


@pytest.fixture
def key(client: Client, operator: Operator) -> dict[str, str]:
    made = client.post("/api/v1/tenants", json={"name": f"t-{uuid4().hex[:8]}"}, headers=operator.headers)
    url, scopes = f"/api/v1/tenants/{made.json()['id']}/keys", ["inference", "adapters:write"]
    made = client.post(url, json={"name": "k", "scopes": scopes}, headers=operator.headers)
    return {"authorization": f"Bearer {made.json()['secret']}"}


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_upload_without_a_replica_is_kept_and_waits(
    client: Client, key: dict[str, str], folder: Path
) -> None:
    url = "/v1/adapters/pirate/versions"
    sent = client.post(url, files=files_of(folder), headers=key, params={"alias": "next"})
    assert (sent.status_code, sent.json()["state"], sent.json()["aliases"]) == (202, "uploaded", [])
    assert sent.headers["location"] == "versions/1"  # relative: it holds behind a proxy with a prefix
    place = urljoin(url, sent.headers["location"])
    assert client.get(place, headers=key).json()["state"] == "uploaded"
    again = client.post(url, files=files_of(folder), headers=key)
    assert (again.status_code, again.json()["version"]) == (200, 1)
    chat = {"model": "pirate@1", "messages": [{"role": "user", "content": "x"}]}
    assert client.post("/v1/chat/completions", json=chat, headers=key).status_code == 404
    told = client.get(f"{place}/proof", headers=key).json()
    assert (told["state"], told["proofs"], told["waiting"][0]["reason"]) == ("uploaded", [], "no_replica")
    assert told["facts"]["matched"] == {"q_proj": 1}
    asked = client.post(f"{place}/proof", json={"longest": True}, headers=key)
    assert (asked.status_code, asked.json()["waiting"][0]["longest"]) == (202, True)
    listed = client.get(url, headers=key, params={"state": "uploaded"}).json()["data"]
    assert [each["version"] for each in listed] == [1]


def test_what_is_refused_before_a_byte_is_read(client: Client, key: dict[str, str], folder: Path) -> None:
    url = "/v1/adapters/pirate/versions"
    for alias in ("7", "Up", "a" * 64):
        refused = client.post(url, files=files_of(folder), headers=key, params={"alias": alias})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "alias")
    bad = {**files_of(folder), "acceptance.json": b'[{"input": "x"}]'}
    refused = client.post(url, files=bad, headers=key)
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_acceptance")
    assert client.get("/v1/adapters/pirate", headers=key).status_code == 404
    assert client.get("/v1/adapters/pirate/versions/1/proof", headers=key).status_code == 404


@pytest.mark.parametrize(
    ("prefer", "wait_s"),
    [
        ("", 30),
        ("respond-async", 0),
        ("Wait=10", 10),
        ("wait=99", 30),
        ("x, respond-async; y", 0),
        ("wait=", 30),
    ],
)
def test_who_would_not_wait_says_so(prefer: str, wait_s: float) -> None:
    assert preferred_wait_s(prefer, 30) == wait_s
