"""Every route under `/api/v1` states its roles, and holds to them for each role."""

from __future__ import annotations

import re
from typing import Any, cast
from uuid import uuid4

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from gateway import openapi
from gateway.principal import Role, Scope
from gateway.roles import EVERYONE, OPERATORS, ROLES, SCOPES, roles_of
from tests.gateway.conftest import Operator
from tests.gateway.route_bodies import NO_STREAM

Client = TestClient[Any]
MEMBERS = [role for role in Role if role is not Role.OPERATOR]


def routes(client: Client) -> set[tuple[str, str]]:
    """(method, path) of all that asks for an account."""
    found = openapi.operations(cast(Litestar, client.app))
    return {
        (method.upper(), path) for path, method, public in found if path.startswith("/api/") and not public
    }


def test_every_route_states_its_roles(client: Client) -> None:
    assert routes(client) - set(ROLES) == set(), "state their roles in gateway/roles.py"
    assert set(ROLES) - routes(client) == set(), "there is no such route"


def test_what_is_not_in_the_table_is_open_to_nobody() -> None:
    assert roles_of("GET", "/api/v1/anything") == frozenset()
    assert roles_of("DELETE", "/api/v1/tenants/{tenant:uuid}") == frozenset()
    assert roles_of("GET", "/api/v1/tenants/{tenant:uuid}") == EVERYONE


def test_operators_reach_everything_and_others_nothing_that_is_of_no_tenant() -> None:
    assert all(Role.OPERATOR in roles for roles in ROLES.values())
    for (method, path), roles in ROLES.items():
        if "{tenant}" not in path:
            assert roles in (OPERATORS, EVERYONE), (method, path)
        if path.endswith("/password") and "{tenant}" in path:
            assert roles == OPERATORS
    assert not any(Scope.INFERENCE in scopes or Scope.KEYS_WRITE in scopes for scopes in SCOPES.values())


def concrete(path: str, tenant: str) -> str:
    """The tenant is real, whatever else is named is nobody's."""
    values = {"tenant": tenant, "number": "1", "other": "2", "version": "1"}
    ids = ["recipient", "member_id", "replica", "request_id", "endpoint_id", "delivery_id", "upload_id"]
    values |= dict.fromkeys([*ids, "rollout_id", "check_id"], str(uuid4()))
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], "x"), path)


@pytest.mark.parametrize("role", MEMBERS)
def test_each_role_reaches_its_routes_and_no_other(client: Client, operator: Operator, role: Role) -> None:
    tenant = client.post("/api/v1/tenants", json={"name": uuid4().hex}, headers=operator.headers).json()["id"]
    root = f"/api/v1/tenants/{tenant}/members"
    wanted = {"email": f"{uuid4()}@example.com", "role": role}
    member = client.post(root, json=wanted, headers=operator.headers).json()["id"]
    token = client.post(f"{root}/{member}/tokens", json={"name": "t"}, headers=operator.headers).json()
    headers = {"authorization": f"Bearer {token['secret']}"}
    for (method, path), roles in sorted(ROLES.items(), key=lambda item: item[0][0] == "DELETE"):
        if path.startswith("/api/v1/session"):  # of browsers only
            continue
        answer = client.request(method, concrete(path, tenant), headers=headers | NO_STREAM)
        of_no_tenant = "{tenant}" not in path and roles != EVERYONE
        if role not in roles or of_no_tenant:
            assert answer.status_code == 403, (method, path, answer.text)
            assert method == "HEAD" or answer.json()["code"] == "insufficient_permissions"
        else:
            assert answer.status_code not in (401, 403, 500), (method, path, answer.text)
