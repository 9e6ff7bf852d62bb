"""Which requests there were, and why: who may ask, filters, pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient

from gateway.db import Database
from gateway.events import repository
from gateway.events.event import Outcome, RequestEvent
from gateway.principal import TenantId
from tests.gateway.conftest import Operator
from tests.gateway.events.making import make_event

Client = TestClient[Any]


def new_key(
    client: Client, operator: Operator, tenant: TenantId, *scopes: str, **more: Any
) -> dict[str, str]:
    body = {"name": "k", "scopes": list(scopes), **more}
    made = client.post(f"/api/v1/tenants/{tenant}/keys", json=body, headers=operator.headers).json()
    return {"authorization": f"Bearer {made['secret']}"}


async def add(db: Database, *events: RequestEvent) -> None:
    async with db.system_session() as session:
        await repository.add(session, events)


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["data"]]


async def test_filters_find_what_they_say(
    client: Client, operator: Operator, db: Database, tenant: TenantId
) -> None:
    served = make_event(tenant, adapter_name="pirate", total_ms=5_000.0)
    limited = make_event(
        tenant, outcome=Outcome.REFUSED, status=429, error_code="rate_limit_exceeded", key_id="k2"
    )
    left = make_event(tenant, outcome=Outcome.CLIENT_LEFT, status=None)
    old = make_event(tenant, ago=timedelta(hours=30))
    await add(db, served, limited, left, old)
    headers = new_key(client, operator, tenant, "usage:read")

    def found(query: str) -> list[str]:
        return ids(client.get(f"/v1/requests?{query}", headers=headers))

    assert found("") == [str(event.request_id) for event in (left, limited, served)]
    assert found("outcome=refused") == found("status=4") == found("key=k2") == [str(limited.request_id)]
    assert found("code=rate_limit_exceeded") == [str(limited.request_id)]
    assert found("adapter=pirate") == found("slow_ms=4999") == [str(served.request_id)]
    since = (datetime.now(UTC) - timedelta(hours=48)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert found(f"since={since}")[-1] == str(old.request_id)
    seen = client.get(f"/api/v1/tenants/{tenant}/requests?status=2", headers=operator.headers)
    assert ids(seen) == [str(served.request_id)]


async def test_pages_lie_one_behind_the_other(
    client: Client, operator: Operator, db: Database, tenant: TenantId
) -> None:
    events = [make_event(tenant) for _ in range(7)]
    await add(db, *events)
    headers = new_key(client, operator, tenant, "usage:read")
    found, cursor, pages = [], "", 0
    while cursor is not None:
        query = f"limit=3&cursor={cursor}" if cursor else "limit=3"
        answer = client.get(f"/v1/requests?{query}", headers=headers)
        found += ids(answer)
        cursor = answer.json()["next_cursor"]
        assert answer.json()["has_more"] is (cursor is not None)
        pages += 1
    assert found == [str(event.request_id) for event in reversed(events)]
    assert pages == 3


async def test_nobody_elses_request_is_told(
    client: Client, operator: Operator, db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    mine, theirs = await new_tenant(), await new_tenant()
    event = make_event(theirs)
    await add(db, event)
    headers = new_key(client, operator, mine, "usage:read")
    foreign = client.get(f"/v1/requests/{event.request_id}", headers=headers)
    unknown = client.get(f"/v1/requests/{uuid4()}", headers=headers)
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.content == unknown.content
    assert ids(client.get("/v1/requests", headers=headers)) == []
    story = client.get(f"/api/v1/tenants/{theirs}/requests/{event.request_id}", headers=operator.headers)
    assert story.json()["explanation"].startswith("Served after 10.0 ms.")
    assert [step["begins_ms"] for step in story.json()["timeline"]] == [0.0, 1.0]
    other = client.get(f"/api/v1/tenants/{mine}/requests/{event.request_id}", headers=operator.headers)
    assert other.status_code == 404


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("since=2026-02-01T00:00:00Z&until=2026-01-01T00:00:00Z", "since"),
        ("since=2020-01-01T00:00:00Z", "since"),
        ("since=0001-01-01T00:00:00%2B14:00", "since"),
        ("outcome=happy", "outcome"),
        ("status=9", "status"),
        ("cursor=nonsense", "cursor"),
        ("limit=201", "limit"),
    ],
)
async def test_what_makes_no_sense_is_refused(
    client: Client, operator: Operator, tenant: TenantId, query: str, param: str
) -> None:
    headers = new_key(client, operator, tenant, "usage:read")
    refused = client.get(f"/v1/requests?{query}", headers=headers)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    blind = new_key(client, operator, tenant, "inference")
    for path in ("/v1/requests", f"/v1/requests/{uuid4()}", "/v1/metrics/requests"):
        assert client.get(path, headers=blind).status_code == 403


async def test_a_worker_writes_what_it_turned_away(
    client: Client, operator: Operator, tenant: TenantId, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = new_key(client, operator, tenant, "usage:read")
    body = {"model": "nothing-like-it", "messages": [{"role": "user", "content": "x"}]}
    refused = client.post("/v1/chat/completions", json=body, headers=headers)
    assert refused.status_code == 403
    allowed = new_key(client, operator, tenant, "inference")
    unknown = client.post("/v1/chat/completions", json=body, headers=allowed)
    assert unknown.status_code == 404
    elsewhere = new_key(client, operator, tenant, "inference", allowed_networks=["192.0.2.0/24"])
    abroad = client.post("/v1/chat/completions", json=body, headers=elsewhere)
    assert (abroad.status_code, abroad.json()["error"]["code"]) == (403, "ip_not_authorized")
    monkeypatch.setattr(client.app.state.services.serving.open_requests, "_most_of_tenant", 0)
    crowded = client.post("/v1/chat/completions", json=body, headers=allowed)
    assert (crowded.status_code, crowded.json()["error"]["code"]) == (503, "too_many_open_requests")
    wanted = [answer.headers["x-request-id"] for answer in (crowded, abroad, unknown, refused)]
    for _ in range(100):
        found = ids(client.get("/v1/requests?outcome=refused", headers=headers))
        if len(found) == len(wanted):
            break
        await asyncio.sleep(0.1)
    assert found == wanted
    stories = [client.get(f"/v1/requests/{one}", headers=headers).json() for one in wanted]
    assert [story["at_step"] for story in stories] == ["auth", "auth", "resolve", "auth"]
    assert [story["request"]["model"] for story in stories] == [None] * 4
    assert "This tenant's limit is 0 requests open at a time" in stories[0]["explanation"]
    assert "may not be used from the address" in stories[1]["explanation"]
    assert "lacks the scope" in stories[3]["explanation"]


async def test_whose_a_request_is_hears_who_may_read_it_there(
    client: TestClient[Any], operator: Operator, db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    mine, theirs = await new_tenant(), await new_tenant()
    event = make_event(mine)
    await add(db, event)
    path = f"/api/v1/requests/{event.request_id}"
    seen = client.get(path, headers=operator.headers)
    assert seen.json() == {"id": str(event.request_id), "tenant": str(mine)}
    for tenant, role, status in (
        (mine, "viewer", 200),
        (mine, "billing", 404),
        (theirs, "tenant_admin", 404),
    ):
        root = f"/api/v1/tenants/{tenant}/members"
        wanted = {"email": f"{uuid4()}@example.com", "role": role}
        member = client.post(root, json=wanted, headers=operator.headers).json()["id"]
        made = client.post(f"{root}/{member}/tokens", json={"name": "t"}, headers=operator.headers).json()
        told = client.get(path, headers={"authorization": f"Bearer {made['secret']}"})
        assert told.status_code == status, (role, told.text)
    for name in (str(uuid4()), "x"):
        assert client.get(f"/api/v1/requests/{name}", headers=operator.headers).status_code == 404
