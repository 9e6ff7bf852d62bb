"""`/v1/webhooks` and the operators' twin: made, seen, changed, tried out and deleted, each with its audit
row."""

from __future__ import annotations

from typing import Any

import pytest
from litestar.testing import TestClient
from sqlalchemy import select

from gateway.models import WebhookEvent
from gateway.principal import TenantId
from tests.gateway.conftest import Operator
from tests.gateway.usage.test_routes import new_key

Client = TestClient[Any]
URL = "https://hooks.example/motet?token=t"


def make(client: Client, headers: dict[str, str], **more: Any) -> Any:
    made = client.post("/v1/webhooks", json={"url": URL, **more}, headers=headers)
    assert made.status_code == 201, made.text
    return made.json()


async def test_its_life(client: Client, operator: Operator, tenant: TenantId) -> None:
    headers = new_key(client, operator, tenant, "webhooks")
    made = make(client, headers, description="mine", kinds=["export.ready", "budget.threshold"])
    endpoint = made["endpoint"]
    assert made["secret"].startswith("whsec_")
    assert (endpoint["url"], endpoint["kinds"]) == (URL, ["budget.threshold", "export.ready"])
    one = f"/v1/webhooks/{endpoint['id']}"
    twin = f"/api/v1/tenants/{tenant}/webhooks/{endpoint['id']}"
    assert client.get(one, headers=headers).json() == endpoint
    assert client.get(twin, headers=operator.headers).json() == endpoint
    assert client.get("/v1/webhooks", headers=headers).json() == {"data": [endpoint]}

    changed = client.patch(one, json={"kinds": None, "description": "ours"}, headers=headers).json()
    assert (changed["kinds"], changed["description"], changed["url"]) == (None, "ours", URL)
    rotated = client.post(f"{twin}/rotate", json={"overlap_h": 1}, headers=operator.headers).json()
    assert rotated["secret"] != made["secret"]
    assert rotated["endpoint"]["previous_secret_until"] is not None
    ping = client.post(f"{one}/ping", headers=headers)
    assert (ping.status_code, ping.json()["kind"], ping.json()["state"]) == (202, "ping", "waiting")
    page = client.get(f"{one}/deliveries", headers=headers).json()
    assert (page["object"], page["data"], page["has_more"]) == ("list", [ping.json()], False)
    early = client.post(f"{one}/deliveries/{ping.json()['id']}/redeliver", headers=headers)
    assert early.status_code == 409

    disabled = client.patch(one, json={"status": "disabled"}, headers=headers).json()
    assert disabled["disabled_reason"].startswith("by key:")
    assert client.post(f"{one}/ping", headers=headers).status_code == 409
    (failed,) = client.get(f"{one}/deliveries", headers=headers).json()["data"]
    assert (failed["state"], failed["last_error"]) == ("failed", "the endpoint was disabled")
    client.patch(one, json={"status": "active"}, headers=headers)
    again = client.post(f"{one}/deliveries/{failed['id']}/redeliver", headers=headers)
    assert (again.status_code, again.json()["state"]) == (202, "waiting")
    assert client.delete(one, headers=headers).status_code == 200
    assert client.get(one, headers=headers).status_code == 404

    events = client.get(f"/api/v1/tenants/{tenant}/audit", headers=operator.headers).json()["data"]
    told = [each for each in reversed(events) if each["action"].startswith("webhook.")]
    assert [each["action"] for each in told] == [
        "webhook.create",
        "webhook.update",
        "webhook.rotate",
        "webhook.ping",
        "webhook.update",
        "webhook.update",
        "webhook.redeliver",
        "webhook.delete",
    ]
    assert "token=t" not in str(told)
    assert "whsec_" not in str(told)


async def test_deliveries_come_in_pages(client: Client, operator: Operator, tenant: TenantId) -> None:
    headers = new_key(client, operator, tenant, "webhooks")
    one = f"/v1/webhooks/{make(client, headers)['endpoint']['id']}"
    pings = [client.post(f"{one}/ping", headers=headers).json()["id"] for _ in range(3)]
    first = client.get(f"{one}/deliveries?limit=2", headers=headers).json()
    assert ([each["id"] for each in first["data"]], first["has_more"]) == ([pings[2], pings[1]], True)
    last = client.get(f"{one}/deliveries?limit=2&cursor={first['next_cursor']}", headers=headers).json()
    assert ([each["id"] for each in last["data"]], last["next_cursor"]) == ([pings[0]], None)


async def test_pings_are_so_many_an_hour(client: Client, operator: Operator, tenant: TenantId) -> None:
    headers = new_key(client, operator, tenant, "webhooks")
    one = f"/v1/webhooks/{make(client, headers)['endpoint']['id']}"
    statuses = [client.post(f"{one}/ping", headers=headers).status_code for _ in range(21)]
    assert statuses == [202] * 20 + [429]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"url": "http://hooks.example/"}, "url"),
        ({"url": "https://127.0.0.1/"}, "url"),
        ({"url": "https://hooks.example:22/"}, "url"),
        ({"url": "https://user:pass@hooks.example/"}, "url"),
        ({"url": "x"}, "url"),
        ({"url": URL, "kinds": ["ping"]}, "kinds[0]"),
        ({"url": URL, "kinds": "all"}, "kinds"),
        ({"url": URL, "kinds": []}, "kinds"),
        ({"url": URL, "secret": "mine"}, "secret"),
        ({}, "url"),
    ],
)
async def test_what_is_none_is_refused_by_its_field(
    client: Client, operator: Operator, tenant: TenantId, body: dict[str, Any], param: str
) -> None:
    headers = new_key(client, operator, tenant, "webhooks")
    answer = client.post("/v1/webhooks", json=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


async def test_who_may_not(client: Client, operator: Operator, tenant: TenantId) -> None:
    headers = new_key(client, operator, tenant, "inference", "usage:read", "adapters:write")
    assert client.get("/v1/webhooks", headers=headers).status_code == 403


async def test_keys_are_told_of(client: Client, operator: Operator, tenant: TenantId, db: Any) -> None:

    made = client.post(
        f"/api/v1/tenants/{tenant}/keys", json={"name": "k", "scopes": ["webhooks"]}, headers=operator.headers
    ).json()
    one = f"/api/v1/tenants/{tenant}/keys/{made['key']['id']}"
    renewed = client.post(f"{one}/rotate", json={"overlap_s": 60}, headers=operator.headers).json()
    client.delete(one, headers=operator.headers)
    async with db.system_reader() as session:
        found = select(WebhookEvent).where(WebhookEvent.tenant_id == tenant).order_by(WebhookEvent.id)
        events = list(await session.scalars(found))
    assert [event.kind for event in events] == ["key.created", "key.rotated", "key.revoked"]
    assert {event.data["key_id"] for event in events} == {made["key"]["id"]}
    told = str([event.data for event in events])
    assert made["secret"] not in told
    assert renewed["secret"] not in told
