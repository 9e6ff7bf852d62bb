"""Limits over HTTP: operators set them, tenants see what is left and what a request would be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest
from httpx import Response
from litestar.testing import TestClient

from gateway.catalog import repository as catalog
from gateway.catalog.names import LIVE
from gateway.catalog.repository import Line, NewVersion
from gateway.db import Database
from gateway.principal import TenantId
from tests.gateway.conftest import Operator

Client = TestClient[Any]
CHAT = {"model": "base", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}


@dataclass
class Desk:
    """An operator, and a tenant with one key."""

    client: Client
    operator: Operator
    tenant: str
    key_id: str
    secret: str

    @property
    def root(self) -> str:
        return f"/api/v1/tenants/{self.tenant}"

    def patch(self, path: str, **fields: object) -> Response:
        return self.client.patch(self.root + path, json=fields, headers=self.operator.headers)

    def get(self, path: str) -> Response:
        return self.client.get(self.root + path, headers=self.operator.headers)

    def now(self, **query: str) -> dict[str, dict[str, Any]]:
        answer = self.client.get("/v1/limits", params=query, headers=self.key)
        assert answer.status_code == 200, answer.text
        return {one["limit_id"]: one for one in answer.json()["data"]}

    def simulate(self, body: dict[str, Any]) -> Response:
        return self.client.post("/v1/limits/simulate", json=body, headers=self.key)

    @property
    def key(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}"}


@pytest.fixture
def desk(client: Client, operator: Operator) -> Desk:
    name = f"t-{uuid4().hex[:8]}"
    tenant = client.post("/api/v1/tenants", json={"name": name}, headers=operator.headers).json()["id"]
    made = client.post(f"/api/v1/tenants/{tenant}/keys", json={"name": "k"}, headers=operator.headers).json()
    return Desk(client, operator, tenant, made["key"]["id"], made["secret"])


def test_limits_are_set_seen_and_taken_away(desk: Desk) -> None:
    budget = {"amount": "250.5", "hard": False, "thresholds": [80, 50, 80]}
    answer = desk.patch("/limits", input_tokens_per_minute=1_000, budget_month=budget)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "requests_per_minute": None,
        "tokens_per_minute": None,
        "input_tokens_per_minute": 1_000,
        "output_tokens_per_minute": None,
        "max_parallel": None,
        "budget_day": None,
        "budget_month": {"amount": "250.5", "hard": False, "thresholds": [50, 80]},
    }
    assert desk.get("/limits").json() == answer.json()
    assert desk.patch(f"/keys/{desk.key_id}/limits", max_parallel=3, requests_per_minute=9).status_code == 200
    assert set(desk.now()) == {
        "tenant.input_tokens_per_minute",
        "tenant.budget_month",
        "key.requests_per_minute",
        "key.max_parallel",
    }
    assert desk.now()["key.requests_per_minute"]["remaining"] == 9
    gone = desk.patch("/limits", input_tokens_per_minute=None, budget_month=None).json()
    assert (gone["input_tokens_per_minute"], gone["budget_month"]) == (None, None)
    assert set(desk.now()) == {"key.requests_per_minute", "key.max_parallel"}
    log = desk.get("/audit").json()["data"]
    assert [event["action"] for event in log][:3] == ["limits.update"] * 3
    assert log[2]["details"] == {"input_tokens_per_minute": 1_000, "budget_month": budget}


def test_what_can_not_be_is_refused(desk: Desk) -> None:
    for path, fields in (
        ("/limits", {}),
        ("/limits", {"max_parallel": 0}),
        ("/limits", {"budget_day": {"amount": "0"}}),
        ("/limits", {"budget_day": {"amount": "0.00"}}),
        ("/limits", {"budget_day": {"amount": "1e3"}}),
        ("/limits", {"budget_day": {"amount": "-1"}}),
        ("/limits", {"rpm": 3}),
        (f"/keys/{desk.key_id}/limits", {}),
    ):
        assert desk.patch(path, **fields).status_code == 400, (path, fields)
    assert desk.patch("/keys/unknown/limits", max_parallel=1).status_code == 404
    assert desk.patch("/adapters/unknown/limits", max_parallel=1).status_code == 404


async def test_an_adapter_has_limits_of_its_own(desk: Desk, db: Database, client: Client) -> None:
    base = client.app.state.services.catalog.base
    tenant = TenantId(UUID(desk.tenant))
    manifest = {"ranks": [1], "targets": ["q_proj"], "num_modules": 1, "num_parameters": 1}
    async with db.tenant_session(tenant) as session:
        row = await catalog.lock_or_add_adapter(session, Line(tenant, base.base_id), "pirate")
        await catalog.add_version(session, row, NewVersion(uuid4().hex * 2, uuid4().hex * 2, manifest, 9))
        await catalog.move_alias(session, row, LIVE, 1)
    answer = desk.patch("/adapters/pirate/limits", output_tokens_per_minute=40, max_parallel=1)
    assert answer.status_code == 200, answer.text
    seen = desk.get("/adapters/pirate/limits")
    assert (seen.json(), seen.headers["etag"]) == (answer.json(), answer.headers["etag"])
    place = f"/api/v1/tenants/{desk.tenant}/adapters/pirate/limits"
    late = {**desk.operator.headers, "if-match": '"what was there before"'}
    clash = desk.client.patch(place, json={"max_parallel": 2}, headers=late)
    assert (clash.status_code, clash.json()["current"]["max_parallel"]) == (412, 1)
    assert desk.now() == {}
    assert set(desk.now(model="pirate")) == {"adapter.output_tokens_per_minute", "adapter.max_parallel"}
    told = desk.simulate({**CHAT, "model": "pirate"}).json()
    assert told["allowed"]  # more than the bucket holds passes while it is full
    assert told["needed"]["output_tokens"] == 50


def test_a_simulation_says_what_a_request_would_hear_and_takes_nothing(desk: Desk) -> None:
    desk.patch(f"/keys/{desk.key_id}/limits", tokens_per_minute=5_000, requests_per_minute=10)
    before = desk.now()
    told = desk.simulate(CHAT).json()
    assert told["allowed"] is True
    assert told["refused_by"] is None
    assert told["needed"]["requests"] == 1
    assert told["needed"]["tokens"] == told["needed"]["input_tokens"] + 50
    counted = desk.simulate({"model": "base", "prompt_tokens": 100, "max_tokens": 7, "n": 2}).json()
    assert counted["needed"]["tokens"] == 114
    assert desk.now() == before
    assert desk.simulate({"model": "nobody's", "prompt_tokens": 1, "max_tokens": 1}).status_code == 404
    for body in ({}, {**CHAT, "tools": []}, {"model": "base", "prompt_tokens": 0, "max_tokens": 1}):
        assert desk.simulate(body).status_code == 400, body
    assert desk.simulate({**CHAT, "seed": 10**30}).status_code == 400


def test_a_refusal_explains_itself_and_a_simulation_says_the_same(desk: Desk) -> None:
    """No replica is behind this gateway: what is let in by the limits hears 503."""
    desk.patch(f"/keys/{desk.key_id}/limits", requests_per_minute=1)
    first = desk.client.post("/v1/chat/completions", json=CHAT, headers=desk.key)
    assert first.status_code == 503, first.text
    refused = desk.client.post("/v1/chat/completions", json=CHAT, headers=desk.key)
    assert refused.status_code == 429, refused.text
    error = refused.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("rate_limit_error", "rate_limit_exceeded", None)
    limit = error["limit"]
    assert (limit["limit_id"], limit["level"], limit["limit"]) == ("key.requests_per_minute", "key", 1)
    assert (limit["needed"], limit["available"]) == (1, 0)
    assert 0 < limit["retry_after_ms"] <= 60_000
    assert limit["refill_at"].endswith("Z")


def test_without_a_price_a_hard_budget_can_not_be_kept(desk: Desk) -> None:
    desk.patch("/limits", budget_day={"amount": "0.000000000001"})
    told = desk.simulate({"model": "base", "prompt_tokens": 10, "max_tokens": 10})
    if told.status_code == 503:
        assert told.json()["error"]["code"] == "price_unknown"
    else:  # another test made a version of the price book
        assert told.json()["refused_by"]["limit_id"] == "tenant.budget_day"
        assert told.json()["needed"]["money"] is not None
    assert desk.now()["tenant.budget_day"]["remaining"] == "0.000000000001"


def test_what_nests_without_end_is_a_400(desk: Desk) -> None:
    headers = desk.key | {"content-type": "application/json"}
    for body in (b"[" * 500_000, b'{"messages":' + b"[" * 5_000 + b"]" * 5_000 + b"}"):
        answer = desk.client.post("/v1/limits/simulate", content=body, headers=headers)
        assert answer.status_code == 400, answer.text
