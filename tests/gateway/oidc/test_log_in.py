"""Log-in at a provider, without a browser: who gets in, as whom, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from litestar.testing import TestClient
from pydantic import SecretStr
from redis.asyncio import Redis

from deploy.local.services import DatabaseUrls
from gateway.app import create_app
from gateway.oidc.settings import OidcProvider, check_providers, parse_providers
from gateway.public_url import PublicUrl
from tests.gateway.conftest import Operator, settings_of
from tests.oidc_provider import OidcServer

Client = TestClient[Any]
BEGIN = "/api/v1/session/oidc/house"
STRANGE = "/api/v1/session/oidc/strange"  # the same provider, and not trusted with emails
CALLBACK = f"https://testserver.local/motet{BEGIN}/callback"
TENANT = f"oidc-{uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcServer]:
    server = OidcServer({})
    server.redirect_uris |= {CALLBACK, CALLBACK.replace(BEGIN, STRANGE)}
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def door(
    database: DatabaseUrls,
    redis_url: str,
    demo_model_dir: Path,
    provider: OidcServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Client]:
    roles = {"ops": "operator", "devs": f"developer@{TENANT}", "views": f"viewer@{TENANT}"}
    entries = [
        provider.settings(roles=roles, links_accounts=True),
        provider.settings(roles=roles, id="strange"),
    ]
    changes = {
        "base_model": str(demo_model_dir),
        "public_url": "https://testserver.local/motet",
        "oidc_providers": SecretStr(json.dumps(entries)),
    }
    settings = settings_of(database, redis_url, tmp_path_factory.mktemp("oidc"))
    app = create_app(settings.model_copy(update=changes))
    with TestClient(app, base_url="https://testserver.local", raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture
async def browser(door: Client, provider: OidcServer, redis: Redis) -> Client:
    async for key in redis.scan_iter("{motet-log-in}:*"):
        await redis.delete(key)
    door.cookies.clear()
    provider.misdeed = ""
    return door


def person(provider: OidcServer, *groups: str, **claims: Any) -> str:
    name = uuid4().hex
    provider.people[name] = {"email": f"{name}@example.com", "groups": list(groups), **claims}
    return name


def at_provider(browser: Client, name: str, return_to: str = "/", begin: str = BEGIN) -> str:
    """The address that the provider sends the browser back to, as the gateway gets it from its proxy."""
    sent = browser.get(begin, params={"return_to": return_to}, follow_redirects=False)
    assert sent.status_code == 303, sent.text
    with httpx.Client(trust_env=False) as http:
        answer = http.post(sent.headers["location"], data={"sub": name})
    back = answer.headers["location"]
    assert back.startswith(CALLBACK.replace(BEGIN, begin))
    return str(back).replace("/motet/", "/")


def log_in(browser: Client, name: str, return_to: str = "/", begin: str = BEGIN) -> str:
    """Where the browser lands."""
    back = at_provider(browser, name, return_to, begin)
    # The flow's cookie is of the path with the prefix, which a browser sees and this client does not.
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies.jar)
    landed = browser.get(back, headers={"cookie": cookies}, follow_redirects=False)
    assert landed.status_code == 303, landed.text
    return str(landed.headers["location"])


def tenant_of_groups(browser: Client, operator: Operator) -> str:
    """The id of the one that the groups name."""
    made = browser.post("/api/v1/tenants", json={"name": TENANT}, headers=operator.headers)
    if made.status_code == 201:
        return str(made.json()["id"])
    found = browser.get("/api/v1/tenants", params={"name_prefix": TENANT}, headers=operator.headers)
    return str(found.json()["data"][0]["id"])


def test_groups_are_what_the_session_may_do(
    browser: Client, provider: OidcServer, operator: Operator
) -> None:
    tenant = tenant_of_groups(browser, operator)
    assert log_in(browser, person(provider, "devs"), "/tenants?x=1") == "/motet/admin/tenants?x=1"
    session = browser.get("/api/v1/session").json()
    assert (session["provider"], session["can"]) == ("house", ["list_tenants", "find_request"])
    assert [one["id"] for one in browser.get("/api/v1/tenants").json()["data"]] == [tenant]
    found = browser.get(f"/api/v1/tenants/{tenant}").json()
    assert "create_key" in found["can"]
    assert "suspend" not in found["can"]
    assert browser.get("/api/v1/replicas").status_code == 403

    browser.cookies.clear()
    log_in(browser, person(provider, "ops"))
    assert "create_tenant" in browser.get("/api/v1/session").json()["can"]


def test_who_has_no_role_gets_no_session(browser: Client, provider: OidcServer) -> None:
    assert log_in(browser, person(provider, "strangers")).endswith("/admin/log-in?error=no_role")
    assert log_in(browser, person(provider, "ops", email=None)).endswith("error=no_email")
    assert log_in(browser, person(provider, "ops", email_verified=False)).endswith("error=no_email")
    assert browser.get("/api/v1/session").status_code == 401


def test_no_provider_opens_an_operators_account_by_its_email(
    browser: Client, provider: OidcServer, operator: Operator
) -> None:
    """Whoever may say which email somebody has could be anybody; only a group makes operators."""
    name = person(provider, "views", email=operator.email)
    assert log_in(browser, name).endswith("error=email_taken")
    name = person(provider, "ops", email=operator.email)
    assert log_in(browser, name) == "/motet/admin/"


@pytest.mark.parametrize("named_first", [True, False])
def test_what_is_given_to_an_email_is_not_for_whom_an_untrusted_provider_calls_so(
    browser: Client, provider: OidcServer, operator: Operator, named_first: bool
) -> None:
    """Nor does one tenant's naming a member shut a person out of another, whose groups let her in."""
    own = tenant_of_groups(browser, operator)
    email = f"{uuid4().hex}@example.com"
    other = browser.post("/api/v1/tenants", json={"name": uuid4().hex}, headers=operator.headers).json()["id"]

    def name_the_member() -> None:
        member = {"email": email, "role": "tenant_admin"}
        url = f"/api/v1/tenants/{other}/members"
        assert browser.post(url, json=member, headers=operator.headers).status_code == 201

    if named_first:
        name_the_member()
    assert log_in(browser, person(provider, "devs", email=email), begin=STRANGE) == "/motet/admin/"
    if not named_first:
        name_the_member()
    assert [one["id"] for one in browser.get("/api/v1/tenants").json()["data"]] == [own]
    assert browser.get(f"/api/v1/tenants/{other}/members").status_code == 404
    assert browser.get("/api/v1/session").json()["admin"]["email"] == f"{email} (strange)"


def test_a_provider_that_is_trusted_later_gives_its_people_their_emails(
    browser: Client, provider: OidcServer, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tenant_of_groups(browser, operator)
    name = person(provider, "devs")
    log_in(browser, name, begin=STRANGE)
    before = browser.get("/api/v1/session").json()["admin"]
    known = browser.app.state.services.log_ins._providers["strange"]
    trusted = known.settings.model_copy(update={"links_accounts": True})
    monkeypatch.setattr(known, "settings", trusted)
    for _ in range(2):
        assert log_in(browser, name, begin=STRANGE) == "/motet/admin/"
        now = browser.get("/api/v1/session").json()["admin"]
        assert (now["email"], now["id"] == before["id"]) == (f"{name}@example.com", False)
    assert [one["id"] for one in browser.get("/api/v1/tenants").json()["data"]] == [own]


def test_a_subject_that_is_too_long_is_nobodys(browser: Client, provider: OidcServer) -> None:
    """Two that begin alike would be one person."""
    name = "s" * 256
    provider.people[name] = {"email": f"{uuid4().hex}@example.com", "groups": ["ops"]}
    assert log_in(browser, name).endswith("error=untrusted")


@pytest.mark.parametrize("misdeed", ["nonce", "aud", "iss", "expired", "key", "unsigned", "userinfo"])
def test_a_token_that_does_not_hold_logs_nobody_in(
    browser: Client, provider: OidcServer, misdeed: str
) -> None:
    name = person(provider, "ops")
    back = at_provider(browser, name)
    provider.misdeed = misdeed
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies.jar)
    landed = browser.get(back, headers={"cookie": cookies}, follow_redirects=False)
    assert landed.headers["location"].endswith("error=untrusted"), misdeed
    assert "motet_session" not in landed.headers.get("set-cookie", "")


def test_a_flow_is_one_browsers_and_good_once(browser: Client, provider: OidcServer) -> None:
    name = person(provider, "ops")
    back = at_provider(browser, name)
    stolen = browser.get(back, headers={"cookie": "none=1"}, follow_redirects=False)
    assert stolen.headers["location"].endswith("error=expired")
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies.jar)
    again = browser.get(back, headers={"cookie": cookies}, follow_redirects=False)
    assert again.headers["location"].endswith("error=expired")
    both = [at_provider(browser, name), at_provider(browser, name)]  # two tabs
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in browser.cookies.jar)
    for each in both:
        landed = browser.get(each, headers={"cookie": cookies}, follow_redirects=False)
        assert landed.headers["location"] == "/motet/admin/"


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "/\nx", "evil.example"]
)
def test_no_log_in_leads_out(browser: Client, provider: OidcServer, target: str) -> None:
    assert log_in(browser, person(provider, "ops"), target) == "/motet/admin/"


def test_settings_that_can_not_work_are_refused_at_the_start() -> None:
    one = {"id": "a", "name": "A", "issuer": "https://a.example", "client_id": "m", "client_secret": "hidden"}
    secure = PublicUrl.parse("https://motet.example")

    def refusal(change: dict[str, Any], public: PublicUrl = secure) -> str:
        with pytest.raises(ValueError, match="MOTET_") as refused:
            check_providers(parse_providers(SecretStr(json.dumps([one | change]))), public)
        assert "hidden" not in str(refused.value)
        return str(refused.value)

    assert "https" in refusal({"issuer": "http://a.example"})
    assert "openid" in refusal({"scopes": "email"})
    assert "'root' is no right" in refusal({"roles": {"g": "root"}})
    assert "operators are of no tenant" in refusal({"roles": {"g": "operator@acme"}})
    assert "without TLS" in refusal({}, PublicUrl.parse("http://motet.example"))
    assert "more" in refusal({"more": 1})
    assert parse_providers(None) == parse_providers(SecretStr("")) == ()
    with pytest.raises(ValueError, match="an id of its own"):
        check_providers([OidcProvider(**one), OidcProvider(**one)], secure)
