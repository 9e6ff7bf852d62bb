from __future__ import annotations

from typing import Any
from uuid import uuid4

from litestar.testing import TestClient

from gateway.principal import TenantId
from tests.gateway.conftest import Operator

Client = TestClient[Any]


def new_key(client: Client, operator: Operator, tenant: TenantId, *scopes: str) -> dict[str, str]:
    made = client.post(
        f"/api/v1/tenants/{tenant}/keys",
        json={"name": "usage", "scopes": list(scopes)},
        headers=operator.headers,
    )
    assert made.status_code == 201, made.text
    return {"authorization": f"Bearer {made.json()['secret']}"}


async def test_a_tenant_sees_its_own_and_an_operator_any(
    client: Client, operator: Operator, tenant: TenantId
) -> None:
    for scope in ("usage:read", "inference"):
        own = client.get("/v1/usage", headers=new_key(client, operator, tenant, scope))
        assert (own.status_code, own.json()["data"]) == (200, [])
    seen = client.get(f"/api/v1/tenants/{tenant}/usage", headers=operator.headers)
    assert (seen.status_code, seen.json()["requests"]) == (200, 0)
    assert client.get(f"/api/v1/tenants/{uuid4()}/usage", headers=operator.headers).status_code == 404


async def test_who_may_not_and_what_makes_no_sense(
    client: Client, operator: Operator, tenant: TenantId
) -> None:
    other = client.get("/v1/usage", headers=new_key(client, operator, tenant, "adapters:read"))
    assert other.status_code == 403
    headers = new_key(client, operator, tenant, "usage:read")
    for query in ("first=2026-02-01&last=2026-01-01", "first=2020-01-01&last=2026-01-01", "first=soon"):
        refused = client.get(f"/v1/usage?{query}", headers=headers)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "first"
    for day in ("0001-01-01", "1999-12-31", "9999-12-31"):
        for param in ("first", "last"):
            refused = client.get(f"/v1/usage?{param}={day}", headers=headers)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
