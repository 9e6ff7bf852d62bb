"""Operators turn a tenant's response cache on, and drop its caches at once."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from litestar.testing import TestClient
from sqlalchemy import select

from gateway.api_keys.authenticator import principal_of
from gateway.db import Database
from gateway.models import ApiKey, Tenant
from gateway.principal import CacheMode, CachePolicy, Principal
from tests.gateway.conftest import Operator

Client = TestClient[Any]


def made(client: Client, operator: Operator) -> dict[str, Any]:
    answer = client.post("/api/v1/tenants", json={"name": f"t-{uuid4().hex[:8]}"}, headers=operator.headers)
    client.post(f"/api/v1/tenants/{answer.json()['id']}/keys", json={"name": "k"}, headers=operator.headers)
    found: dict[str, Any] = answer.json()
    return found


async def principal(db: Database, tenant: str) -> Principal:
    """What the walk knows of a key of the tenant."""
    async with db.system_reader() as session:
        row = (await session.scalars(select(Tenant).where(Tenant.id == tenant))).one()
        key = (await session.scalars(select(ApiKey).where(ApiKey.tenant_id == tenant))).one()
        return principal_of(key, row)


async def test_it_is_off_until_it_is_turned_on(client: Client, operator: Operator, db: Database) -> None:
    tenant = made(client, operator)
    url = f"/api/v1/tenants/{tenant['id']}/caches"
    plain = {"tenant": tenant["id"], "response_cache": "off", "response_cache_age_s": 3600, "cache_epoch": 1}
    assert client.get(url, headers=operator.headers).json() == plain
    assert (await principal(db, tenant["id"])).response_cache is None

    changed = client.patch(
        url, json={"response_cache": "seeded", "response_cache_age_s": 60}, headers=operator.headers
    )
    assert changed.json() == plain | {"response_cache": "seeded", "response_cache_age_s": 60}
    known = await principal(db, tenant["id"])
    assert known.response_cache == CachePolicy(CacheMode.SEEDED, epoch=1, age_s=60)
    assert known.epoch == tenant["epoch"] + 1


async def test_one_call_drops_both_caches(client: Client, operator: Operator, db: Database) -> None:
    tenant = made(client, operator)
    url = f"/api/v1/tenants/{tenant['id']}/caches"
    client.patch(url, json={"response_cache": "greedy"}, headers=operator.headers)
    before = await principal(db, tenant["id"])
    dropped = client.delete(url, headers=operator.headers)
    assert (dropped.status_code, dropped.json()) == (200, {"cache_epoch": 2, "answers": 0})
    after = await principal(db, tenant["id"])
    assert before.response_cache is not None
    assert after.response_cache is not None
    assert after.response_cache.epoch == before.response_cache.epoch + 1
    assert after.salt != before.salt
    assert after.epoch == before.epoch + 1
    log = client.get(f"/api/v1/tenants/{tenant['id']}/audit", headers=operator.headers)
    assert [event["action"] for event in log.json()["data"]][:2] == ["caches.drop", "caches.update"]
    assert after.salt not in log.text


async def test_what_can_not_be_is_refused(client: Client, operator: Operator) -> None:
    url = f"/api/v1/tenants/{made(client, operator)['id']}/caches"
    for body in ({}, {"response_cache": "all"}, {"response_cache_age_s": 0}, {"response_cache_age_s": 10**9}):
        assert client.patch(url, json=body, headers=operator.headers).status_code == 400, body
    for method in ("GET", "DELETE"):
        nobody = client.request(method, f"/api/v1/tenants/{uuid4()}/caches", headers=operator.headers)
        assert nobody.status_code == 404
