"""Logging in as an operator: cookies, CSRF, limits on guessing, tokens."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import pytest
from litestar.testing import TestClient
from redis.asyncio import Redis
from sqlalchemy import text

from gateway.admin_auth import service
from gateway.admin_auth.bootstrap import ensure_admin, new_admin_token
from gateway.admin_auth.sessions import SessionStore
from gateway.client_address import TrustedProxies
from gateway.credentials import Peppers
from gateway.db import Database
from tests.gateway.conftest import Operator

Client = TestClient[Any]


@pytest.fixture(autouse=True)
async def no_attempts_yet(redis: Redis) -> None:
    async for key in redis.scan_iter("{motet-log-in}:*"):
        await redis.delete(key)


def log_in(client: Client, email: str, password: str) -> Any:
    return client.post("/api/v1/session", json={"email": email, "password": password})


def test_a_session_from_log_in_to_log_out(client: Client, operator: Operator) -> None:
    answer = log_in(client, operator.email.upper(), operator.password)
    assert answer.status_code == 201, answer.text
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    csrf = answer.json()["csrf_token"]
    assert (client.get("/api/v1/session")).json() == answer.json()

    bare = client.post("/api/v1/tenants", json={"name": "x"})
    assert (bare.status_code, bare.json()["code"]) == (403, "csrf_failed")
    wrong = client.post("/api/v1/tenants", json={"name": "X"}, headers={"x-csrf-token": "wrong"})
    assert wrong.status_code == 403
    heard = client.post("/api/v1/tenants", json={"name": "X"}, headers={"x-csrf-token": csrf})
    assert heard.status_code == 400  # past the door, refused for its name

    out = client.delete("/api/v1/session", headers={"x-csrf-token": csrf})
    assert out.status_code == 204
    client.cookies.set("motet_session", cookie.partition("=")[2].partition(";")[0])
    assert (client.get("/api/v1/session")).status_code == 401


def test_unknown_email_and_wrong_password_are_one_answer(client: Client, operator: Operator) -> None:
    wrong = log_in(client, operator.email, "wrong password")
    unknown = log_in(client, "nobody@example.com", "wrong password")
    assert (wrong.status_code, unknown.status_code) == (401, 401)
    assert wrong.json() == unknown.json()
    assert "set-cookie" not in wrong.headers


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_another_site_logs_nobody_in(client: Client, operator: Operator, kind: str) -> None:
    """It could make a browser act as somebody else's account; only these three can be sent unasked."""
    body = json.dumps({"email": operator.email, "password": operator.password})
    refused = client.post("/api/v1/session", content=body, headers={"content-type": kind})
    assert (refused.status_code, "set-cookie" in refused.headers) == (400, False)


def test_guessing_is_limited(client: Client, operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "ATTEMPTS_PAIR", 2)
    for _ in range(2):
        assert (log_in(client, operator.email, "wrong password")).status_code == 401
    refused = log_in(client, operator.email, operator.password)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 300


def test_guesses_count_for_who_makes_them_behind_a_proxy_too(
    client: Client, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a stranger's would lock out whoever comes through the same proxy."""
    monkeypatch.setattr(service, "ATTEMPTS_ADDRESS", 1)
    state: Any = client.app.state
    monkeypatch.setattr(state, "services", replace(state.services, proxies=TrustedProxies("10.0.0.1")))

    async def send(said: str) -> int:
        transport = httpx.ASGITransport(app=client.app, client=("10.0.0.1", 1234))
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver.local") as opened:
            wrong = {"email": operator.email, "password": "wrong password"}
            answer = await opened.post("/api/v1/session", json=wrong, headers={"x-forwarded-for": said})
            return answer.status_code

    said = ["192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
    heard = [client.blocking_portal.call(send, each) for each in said]
    assert heard == [401, 429, 401, 401, 429, 401]


async def test_a_disabled_operator_is_out_at_once(client: Client, operator: Operator, db: Database) -> None:
    assert (log_in(client, operator.email, operator.password)).status_code == 201
    async with db.system_session() as session:
        await session.execute(
            text("UPDATE admins SET disabled_at = now() WHERE email = :email"), {"email": operator.email}
        )
    assert (client.get("/api/v1/session")).status_code == 401
    assert (client.get("/api/v1/tenants", headers=operator.headers)).status_code == 401


@pytest.mark.parametrize("token", ["", "mta_x", "mt_" + "a" * 12 + "_" + "a" * 52])
def test_wrong_tokens_are_refused(client: Client, token: str) -> None:
    answer = client.get("/api/v1/tenants", headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == 401
    assert answer.json()["code"] == "invalid_admin_token"


async def test_bootstrap_again_changes_the_password_and_keeps_the_token(
    client: Client, operator: Operator, db: Database, peppers: Peppers
) -> None:
    await ensure_admin(db, peppers, operator.email, "another good password", operator.token)
    assert (log_in(client, operator.email, operator.password)).status_code == 401
    assert (log_in(client, operator.email, "another good password")).status_code == 201
    assert (client.get("/api/v1/tenants", headers=operator.headers)).status_code == 200


async def test_bootstrap_refuses_what_can_not_be(db: Database, peppers: Peppers) -> None:
    with pytest.raises(ValueError, match="12 to 256"):
        await ensure_admin(db, peppers, "a@example.com", "short")
    with pytest.raises(ValueError, match="mta_"):
        await ensure_admin(db, peppers, "a@example.com", "long enough password", "token")
    assert new_admin_token() != new_admin_token()


async def test_redis_holds_no_csrf_token_and_sessions_from_before_go_on(redis: Redis) -> None:
    sessions = SessionStore(redis)
    cookie, kept = await sessions.open(uuid4(), "hash")
    key = f"{{motet-session}}:{hashlib.sha256(cookie.encode()).hexdigest()}"
    stored = await redis.get(key)
    assert isinstance(stored, bytes)
    assert kept.csrf.encode() not in stored
    assert await sessions.find(cookie) == kept

    before = {"admin": str(kept.admin), "csrf": "of-before", "ends_at": kept.ends_at}
    await redis.set(key, json.dumps(before), ex=60)
    found = await sessions.find(cookie)
    assert found is not None
    assert found.csrf == "of-before"
