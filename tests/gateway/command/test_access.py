"""Whom the command line acts as."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.command import access
from gateway.command.access import Access
from gateway.command.api import Api, CommandFailed

DEMO: dict[str, Any] = {
    "admin": {"token": "mta_demo"},
    "tenants": [{"name": "acme", "api_key": "mt_acme"}, {"name": "globex", "api_key": "mt_globex"}],
}


@pytest.fixture(autouse=True)
def ids(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(_: Api, name: str) -> str:
        return f"id-of-{name}"

    monkeypatch.setattr(access, "tenant_id", named)


def who(api: Api) -> str:
    return api._headers["authorization"].removeprefix("Bearer ")


def test_a_tenant_that_is_named_is_meant_whatever_key_is_about() -> None:
    for key in (None, "mt_acme"):
        api, root = Access(api_key=key, demo=DEMO).of_tenant("globex")
        assert (who(api), root) == ("mta_demo", "/api/v1/tenants/id-of-globex")


def test_a_token_that_is_given_goes_before_the_demos() -> None:
    api, root = Access(admin_token="mta_member", demo=DEMO).of_tenant("acme")
    assert (who(api), root) == ("mta_member", "/api/v1/tenants/id-of-acme")


def test_a_key_is_for_its_own_tenant() -> None:
    api, root = Access(api_key="mt_own", demo=DEMO).of_tenant(None)
    assert (who(api), root) == ("mt_own", "/v1")
    with pytest.raises(CommandFailed, match="without --tenant"):
        Access(api_key="mt_own").of_tenant("acme")


def test_what_only_a_key_may_ask_is_asked_with_one() -> None:
    assert who(Access(api_key="mt_own", demo=DEMO).of_key(None)) == "mt_own"
    assert who(Access(api_key="mt_own", demo=DEMO).of_key("acme")) == "mt_acme"
    for tenant in (None, "initech"):
        with pytest.raises(CommandFailed, match="needs the tenant's key"):
            Access(admin_token="mta_x", demo=DEMO).of_key(tenant)
