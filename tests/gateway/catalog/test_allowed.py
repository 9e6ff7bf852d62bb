"""What is offered with an adapter and a version is what the routes then allow."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from gateway.catalog.allowed import ADAPTER_ACTIONS, VERSION_ACTIONS, Viewer
from gateway.catalog.repository import AdapterRow
from gateway.models import Adapter, AdapterVersion, VersionState
from gateway.principal import Limits, Principal, Role, Scope, TenantId
from gateway.roles import ROLES, SCOPES


def viewer(role: Role | None, scopes: frozenset[Scope], models: frozenset[str] | None = None) -> Viewer:
    tenant = TenantId(uuid4())
    return Viewer(
        Principal(tenant, "acme", "key", scopes, Limits(), Limits(), "salt", 1, allowed_models=models), role
    )


def of_role(role: Role) -> Viewer:
    return viewer(role, SCOPES[role])


def version(state: VersionState, *, was_ready: bool = True) -> AdapterVersion:
    return AdapterVersion(number=1, state=state, ready_at=datetime.now(UTC) if was_ready else None)


def row(state: VersionState, *, others: bool = False) -> AdapterRow:
    retired = state is VersionState.RETIRED
    latest = version(state)
    return AdapterRow(Adapter(name="pirate"), {}, latest, others or not retired, others or retired, {}, {})


def test_every_action_is_a_route_of_the_table() -> None:
    for call in (*ADAPTER_ACTIONS.values(), *VERSION_ACTIONS.values()):
        assert (call.method, call.route) in ROLES, call


def test_roles_are_offered_what_they_reach() -> None:
    ready = version(VersionState.READY)
    assert of_role(Role.VIEWER).can_version("pirate", ready) == ["read_proof", "read_purge"]
    assert of_role(Role.DEVELOPER).can_version("pirate", ready) == [
        *("read_proof", "prove", "retire", "read_purge"),
    ]
    assert "purge" in of_role(Role.TENANT_ADMIN).can_version("pirate", ready)
    assert "share" not in of_role(Role.TENANT_ADMIN).can_adapter(row(VersionState.READY))
    assert "share" in of_role(Role.OPERATOR).can_adapter(row(VersionState.READY))


def test_states_take_away_what_they_rule_out() -> None:
    admin = of_role(Role.TENANT_ADMIN)
    assert admin.can_version("pirate", version(VersionState.RETIRED)) == ["restore", "purge", "read_purge"]
    never = version(VersionState.REJECTED, was_ready=False)
    assert "prove" not in admin.can_version("pirate", never)
    assert "prove" in admin.can_version("pirate", version(VersionState.REJECTED))
    gone = admin.can_adapter(row(VersionState.RETIRED))
    assert gone == ["upload", "restore", "purge", "read_purge"]
    assert "restore" not in admin.can_adapter(row(VersionState.READY))
    assert "restore" in admin.can_adapter(row(VersionState.READY, others=True))


@pytest.mark.parametrize(
    ("scope", "models", "changes"),
    [
        (Scope.ADAPTERS_READ, None, False),
        (Scope.ADAPTERS_WRITE, None, True),
        (Scope.ADAPTERS_WRITE, frozenset({"other"}), False),
    ],
)
def test_a_key_is_held_to_its_scopes_and_models(
    scope: Scope, models: frozenset[str] | None, changes: bool
) -> None:
    key = viewer(None, frozenset({scope}), models)
    found = key.can_version("pirate", version(VersionState.READY))
    assert ("purge" in found, "read_proof" in found) == (changes, True)
    assert "change_limits" not in key.can_adapter(row(VersionState.READY))
