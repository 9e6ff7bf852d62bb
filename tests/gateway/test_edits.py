"""Edits by tag, and what objects say that their viewer may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient

from gateway.actions import Call
from gateway.admin_auth import schemas as accounts
from gateway.aliases import schemas as aliases
from gateway.api_keys import schemas as keys
from gateway.edits import require_match, tag_of
from gateway.errors import PreconditionFailed
from gateway.members import schemas as members
from gateway.principal import Role
from gateway.replicas import schemas as replicas
from gateway.roles import ROLES
from gateway.rollouts import schemas as rollouts
from gateway.tenants import schemas as tenants
from gateway.webhooks import schemas as webhooks
from tests.gateway.conftest import Operator

Client = TestClient[Any]
VALUES: dict[str, list[Any]] = {
    "pools": [["a"], ["b"]],
    "role": ["billing", "developer"],
    "kinds": [["key.created"], ["key.revoked"]],
}


def test_a_tag_is_of_values_not_of_their_order() -> None:
    assert tag_of({"a": 1, "b": [1]}) == tag_of({"b": [1], "a": 1})
    assert tag_of({"a": 1}) != tag_of({"a": None})
    weakened = f"W/{tag_of({'a': 1})}"  # by a proxy that compresses
    for given in (None, "*", f'"other", {tag_of({"a": 1})}', weakened):
        require_match(given, {"a": 1})
    with pytest.raises(PreconditionFailed) as refused:
        require_match(tag_of({"a": 2}), {"a": 1})
    assert refused.value.details == {"current": {"a": 1}}


def test_every_action_is_a_route_of_the_table() -> None:
    of_objects: tuple[Mapping[Any, Call], ...] = (
        *(accounts.ACTIONS, tenants.ACTIONS, keys.ACTIONS, replicas.ACTIONS),
        *(aliases.ACTIONS, rollouts.ACTIONS),
        *(members.ACTIONS, members.TOKEN_ACTIONS, webhooks.ACTIONS, webhooks.DELIVERY_ACTIONS),
    )
    for actions in of_objects:
        assert not [call for call in actions.values() if tuple(call) not in ROLES]


@pytest.fixture
def made(client: Client, operator: Operator) -> dict[str, str]:
    """Paths of things that can be edited, each with a change of it."""
    tenant = client.post("/api/v1/tenants", json={"name": uuid4().hex}, headers=operator.headers).json()["id"]
    one = f"/api/v1/tenants/{tenant}"
    key = client.post(f"{one}/keys", json={"name": "k"}, headers=operator.headers).json()["key"]["id"]
    person = {"email": f"{uuid4()}@example.com", "role": "viewer"}
    member = client.post(f"{one}/members", json=person, headers=operator.headers).json()["id"]
    hook = client.post(f"{one}/webhooks", json={"url": "https://hooks.example/"}, headers=operator.headers)
    url = {"url": f"http://{uuid4().hex[:12]}.example:8090"}
    replica = client.post("/api/v1/replicas", json=url, headers=operator.headers).json()["id"]
    return {
        one: "share_weight",
        f"{one}/limits": "requests_per_minute",
        f"{one}/keys/{key}": "tokens_per_minute",
        f"{one}/keys/{key}/limits": "max_parallel",
        f"/api/v1/replicas/{replica}": "pools",
        f"{one}/members/{member}": "role",
        f"{one}/webhooks/{hook.json()['endpoint']['id']}": "kinds",
        f"{one}/caches": "response_cache_age_s",
    }


def test_an_edit_of_what_was_changed_meanwhile_changes_nothing(
    client: Client, operator: Operator, made: dict[str, str]
) -> None:
    for path, field in made.items():
        values = VALUES.get(field, [5, 6])
        seen = client.get(path, headers=operator.headers).headers["etag"]
        first = {**operator.headers, "if-match": seen}
        saved = client.patch(path, json={field: values[0]}, headers=first)
        assert (saved.status_code, saved.json()[field]) == (200, values[0]), (path, saved.text)
        late = client.patch(path, json={field: values[1]}, headers=first)
        assert (late.status_code, late.json()["code"]) == (412, "precondition_failed"), path
        assert late.json()["current"][field] == values[0], path
        assert late.headers["etag"] == saved.headers["etag"]
        now = client.get(path, headers=operator.headers)
        assert (now.headers["etag"], now.json()[field]) == (saved.headers["etag"], values[0]), path
        again = client.patch(
            path, json={field: values[1]}, headers={**operator.headers, "if-match": now.headers["etag"]}
        )
        assert again.status_code == 200, path


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.OPERATOR])
def test_what_an_object_says_is_what_the_door_does(client: Client, operator: Operator, role: Role) -> None:
    """For each of a tenant's actions and each role: named in `can` if and only if the call is not refused."""
    tenant = client.post("/api/v1/tenants", json={"name": uuid4().hex}, headers=operator.headers).json()["id"]
    one = f"/api/v1/tenants/{tenant}"
    wanted = {"email": f"{uuid4()}@example.com", "role": role}
    member = client.post(f"{one}/members", json=wanted, headers=operator.headers).json()["id"]
    token = client.post(f"{one}/members/{member}/tokens", json={"name": "t"}, headers=operator.headers).json()
    headers = {"authorization": f"Bearer {token['secret']}"}
    can = client.get(one, headers=headers).json()["can"]
    assert client.get("/api/v1/tenants", headers=headers).json()["data"][0]["can"] == can
    for name, call in tenants.ACTIONS.items():
        if name in ("resume", "undo_offboarding", "read_offboarding"):  # which its state rules out
            assert name not in can
            continue
        path = call.route.replace("{tenant}", tenant).replace("{name}", "x")
        refused = client.request(call.method, path, headers=headers).status_code == 403
        assert (name in can) is not refused, (name, role)


def test_state_takes_actions_away(client: Client, operator: Operator) -> None:
    found = client.post("/api/v1/tenants", json={"name": uuid4().hex}, headers=operator.headers).json()
    one = f"/api/v1/tenants/{found['id']}"
    assert "suspend" in found["can"]
    assert "resume" not in found["can"]
    suspended = client.post(f"{one}/suspend", json={}, headers=operator.headers).json()
    assert {"suspend", "resume"} & set(suspended["can"]) == {"resume"}
    key = client.post(f"{one}/keys", json={"name": "k"}, headers=operator.headers).json()["key"]
    assert "end_previous_secret" not in key["can"]
    revoked = client.delete(f"{one}/keys/{key['id']}", headers=operator.headers).json()
    assert revoked["can"] == ["read_limits"]
    leaving = client.post(f"{one}/offboarding", json={"confirm": found["name"]}, headers=operator.headers)
    assert leaving.status_code == 202
    left = client.get(one, headers=operator.headers).json()["can"]
    assert "undo_offboarding" in left
    assert not {"change", "suspend", "resume", "create_key", "offboard"} & set(left)


def test_rules_of_retention_are_edited_by_tag(
    client: Client, operator: Operator, made: dict[str, str]
) -> None:
    path = f"{next(iter(made))}/retention"
    seen = client.get(path, headers=operator.headers).headers["etag"]
    first = {**operator.headers, "if-match": seen}
    assert client.patch(path, json={"days": {"ended_keys": 30}}, headers=first).status_code == 200
    late = client.patch(path, json={"days": {"ended_keys": 40}}, headers=first)
    assert (late.status_code, late.json()["current"]["days"]["ended_keys"]) == (412, 30)
    back = {**operator.headers, "if-match": late.headers["etag"]}
    saved = client.patch(path, json={"days": {"ended_keys": None}}, headers=back)
    assert (saved.status_code, saved.headers["etag"]) == (200, seen)


def test_members_tokens_and_webhooks_say_what_may_be_done_with_them(
    client: Client, operator: Operator, made: dict[str, str]
) -> None:
    one = next(iter(made))
    person = {"email": f"{uuid4()}@example.com", "role": "tenant_admin"}
    member = client.post(f"{one}/members", json=person, headers=operator.headers).json()
    tokens = f"{one}/members/{member['id']}/tokens"
    token = client.post(tokens, json={"name": "t"}, headers=operator.headers).json()
    own = {"authorization": f"Bearer {token['secret']}"}
    page = client.get(f"{one}/members", headers=own).json()
    assert {"change", "remove", "set_password"} <= set(member["can"])
    assert "set_password" not in page["data"][-1]["can"]
    assert {role["role"] for role in page["roles"]} >= {each["role"] for each in page["data"]}
    assert token["token"]["can"] == ["revoke"]
    place = f"{tokens}/{token['token']['id']}"
    (hook,) = client.get(f"{one}/webhooks", headers=own).json()["data"]
    assert "ping" in hook["can"]
    at = f"{one}/webhooks/{hook['id']}"
    assert client.post(f"{at}/ping", headers=own).json()["can"] == []  # it is on its way
    assert "ping" not in client.patch(at, json={"status": "disabled"}, headers=own).json()["can"]
    (failed,) = client.get(f"{at}/deliveries", headers=own).json()["data"]
    assert (failed["state"], failed["can"]) == ("failed", [])
    client.patch(at, json={"status": "active"}, headers=own)
    assert client.get(f"{at}/deliveries", headers=own).json()["data"][0]["can"] == ["redeliver"]
    assert client.delete(place, headers=operator.headers).json()["can"] == []
