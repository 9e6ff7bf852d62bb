"""Scripts of other origins: shut out unless named, under `/v1` only, and never with credentials."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from litestar.testing import TestClient

from gateway.app import create_app
from gateway.config import Settings
from gateway.cors import MAX_ORIGINS, origins_of

APP = "https://app.example.com"
PREFLIGHT = {
    "origin": APP,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def opened(gateway: TestClient[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Any]]:
    """The same application with origins named; preflights and refused requests need none of its services."""
    settings: Settings = gateway.app.state.services.settings
    app = create_app(settings.model_copy(update={"cors_origins": f"{APP}, http://localhost:3000"}))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def allowed(answer: httpx.Response) -> list[str]:
    return [name for name in answer.headers if name.startswith("access-control-")]


def test_off_by_default(client: TestClient[Any]) -> None:
    answer = client.options(CHAT, headers=PREFLIGHT)
    assert answer.status_code == 405
    assert not allowed(answer)
    assert not allowed(client.post(CHAT, headers={"origin": APP}))


def test_a_preflight_says_what_a_named_origin_may_send_and_for_how_long(opened: TestClient[Any]) -> None:
    answer = opened.options(CHAT, headers=PREFLIGHT)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == APP
    assert answer.headers["access-control-max-age"] == "7200"
    assert "POST" in answer.headers["access-control-allow-methods"]
    names = answer.headers["access-control-allow-headers"].split(", ")
    assert {"authorization", "content-type", "idempotency-key", "x-stainless-lang"} <= set(names)
    assert {"if-match", "if-none-match", "prefer"} <= set(names)
    assert "origin" in answer.headers["vary"]
    assert "access-control-allow-credentials" not in answer.headers


def test_a_preflight_allows_no_header_because_it_was_asked_for(opened: TestClient[Any]) -> None:
    wanted = "x-motet-tenant, cookie, x-stainless-\x01, x-stainless-" + "a" * 100
    answer = opened.options(CHAT, headers={**PREFLIGHT, "access-control-request-headers": wanted})
    names = answer.headers["access-control-allow-headers"]
    assert "x-motet-tenant" not in names
    assert "cookie" not in names
    assert "x-stainless" not in names


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example.com", "https://app.example.com.evil.com", "http://app.example.com", "null"],
)
def test_another_origin_is_told_nothing(opened: TestClient[Any], origin: str) -> None:
    for answer in (
        opened.options(CHAT, headers={**PREFLIGHT, "origin": origin}),
        opened.post(CHAT, headers={"origin": origin}),
        opened.post(CHAT),
    ):
        assert not allowed(answer)
        assert "origin" in answer.headers["vary"]  # nor may it be given what a cache holds for another


def test_answers_and_errors_can_be_read_by_a_named_origin(opened: TestClient[Any]) -> None:
    answer = opened.post(CHAT, headers={"origin": "http://localhost:3000"})
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert {"x-request-id", "etag"} <= set(answer.headers["access-control-expose-headers"].split(", "))
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("path", ["/api/v1/session", "/healthz", "/metrics"])
def test_only_tenants_routes_are_open_to_scripts(opened: TestClient[Any], path: str) -> None:
    for answer in (opened.options(path, headers=PREFLIGHT), opened.get(path, headers={"origin": APP})):
        assert not allowed(answer)


@pytest.mark.parametrize(
    "setting",
    [
        "*",
        "https://*.example.com",
        "null",
        "app.example.com",
        "https://app.example.com/",
        "ftp://x",
        "https://A.com",
    ],
)
def test_what_is_no_origin_is_no_setting(setting: str) -> None:
    with pytest.raises(ValueError, match="is no origin"):
        origins_of(f"https://ok.example.com,{setting}")


def test_so_many_origins_and_no_more() -> None:
    named = [f"https://a{number}.example.com" for number in range(MAX_ORIGINS + 1)]
    assert len(origins_of(",".join(named[:-1]))) == MAX_ORIGINS
    with pytest.raises(ValueError, match=f"at most {MAX_ORIGINS}"):
        origins_of(",".join(named))
