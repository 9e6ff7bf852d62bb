"""What is older than its tenant's rule goes; what is younger, another's, or not of the kind stays."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient
from sqlalchemy import select

from gateway.audit.service import Actor
from gateway.db import Database
from gateway.errors import BadRequest
from gateway.ids import uuid7
from gateway.models import ApiKey
from gateway.principal import TenantId
from gateway.retention.kinds import KINDS
from gateway.retention.schemas import RetentionPatch
from gateway.retention.service import Retention
from tests.gateway.conftest import Operator

Client = TestClient[Any]
OPERATOR = Actor("admin:op@example.com")
NOW = datetime.now(UTC)


async def add_key(db: Database, tenant: TenantId, **ended: datetime) -> str:
    key_id = uuid4().hex[:12]
    async with db.tenant_session(tenant) as session:
        session.add(
            ApiKey(
                id=uuid7(),
                tenant_id=tenant,
                key_id=key_id,
                name="k",
                secret_hmac=bytes(32),
                pepper_version="p",
                scopes=["inference"],
                **ended,
            )
        )
    return key_id


async def keys_of(db: Database, tenant: TenantId) -> set[str]:
    async with db.tenant_reader(tenant) as session:
        return set(await session.scalars(select(ApiKey.key_id)))


async def test_each_tenant_has_its_own_rule_or_the_default(
    db: Database, new_tenant: Callable[[], Awaitable[TenantId]]
) -> None:
    own, default = await new_tenant(), await new_tenant()
    retention = Retention(db)
    await retention.change(OPERATOR, own, RetentionPatch(days={"ended_keys": 10}))
    kept = {}
    for tenant in (own, default):
        kept[tenant] = {
            "live": await add_key(db, tenant),
            "young": await add_key(db, tenant, revoked_at=NOW - timedelta(days=9)),
            "expires": await add_key(db, tenant, expires_at=NOW + timedelta(days=9)),
            "revoked": await add_key(db, tenant, revoked_at=NOW - timedelta(days=11)),
            "expired": await add_key(db, tenant, expires_at=NOW - timedelta(days=11)),
            "ancient": await add_key(db, tenant, revoked_at=NOW - timedelta(days=366)),
        }
    assert await retention.sweep() >= 4
    stay = ("live", "young", "expires")
    assert await keys_of(db, own) == {kept[own][name] for name in stay}
    assert await keys_of(db, default) == {kept[default][name] for name in (*stay, "revoked", "expired")}
    assert await retention.sweep() == 0


async def test_a_rule_is_changed_shown_and_given_up(db: Database, tenant: TenantId) -> None:
    retention = Retention(db)
    assert all(rule.is_default for rule in (await retention.get(tenant)).rules)
    changed = await retention.change(OPERATOR, tenant, RetentionPatch(days={"ended_keys": 30}))
    assert {(rule.kind, rule.days, rule.is_default) for rule in changed.rules} == {
        ("ended_keys", 30, False),
        ("superseded_exports", 90, True),
    } | {(kind.name, kind.default_days, True) for kind in KINDS[2:]}
    back = await retention.change(OPERATOR, tenant, RetentionPatch(days={"ended_keys": None}))
    assert all(rule.is_default for rule in back.rules)
    for wrong in ({"prompts": 3}, {"ended_keys": 6}):
        with pytest.raises(BadRequest):
            await retention.change(OPERATOR, tenant, RetentionPatch(days=dict(wrong)))


def test_over_http_with_its_audit_row(client: Client, operator: Operator) -> None:
    made = client.post("/api/v1/tenants", json={"name": f"r{uuid4().hex[:8]}"}, headers=operator.headers)
    url = f"/api/v1/tenants/{made.json()['id']}"
    answer = client.patch(f"{url}/retention", json={"days": {"ended_keys": 8}}, headers=operator.headers)
    assert answer.status_code == 200
    assert client.get(f"{url}/retention", headers=operator.headers).json() == answer.json()
    wrong: list[dict[str, Any]] = [{"days": {}}, {"days": {"ended_keys": 0}}, {"days": {"x": 8}}, {}]
    for body in wrong:
        assert client.patch(f"{url}/retention", json=body, headers=operator.headers).status_code == 400
    (last,) = client.get(f"{url}/audit?action=retention.", headers=operator.headers).json()["data"]
    assert (last["action"], last["details"]) == ("retention.update", {"ended_keys": 8})
