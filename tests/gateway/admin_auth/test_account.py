"""What an account does about itself: its password, all of its sessions, and looking without staying."""

from __future__ import annotations

import hashlib
import time
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient
from redis.asyncio import Redis

from gateway.admin_auth import service
from gateway.admin_auth.bootstrap import ensure_admin
from gateway.admin_auth.cookies import session_cookie
from gateway.admin_auth.sessions import SessionStore
from gateway.config import Settings
from gateway.credentials import Peppers
from gateway.db import Database
from tests.gateway.conftest import Operator

Client = TestClient[Any]
GIVEN, CHOSEN = "the one that was given", "the one that she chose"


@pytest.fixture(autouse=True)
async def no_attempts_yet(redis: Redis) -> None:
    async for key in redis.scan_iter("{motet-log-in}:*"):
        await redis.delete(key)


def log_in(client: Client, email: str, password: str) -> dict[str, Any]:
    answer = client.post("/api/v1/session", json={"email": email, "password": password})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_given_password_is_changed_before_anything_else(
    client: Client, db: Database, peppers: Peppers
) -> None:
    email = f"{uuid4().hex}@example.com"
    await ensure_admin(db, peppers, email, GIVEN, must_change=True)
    session = log_in(client, email, GIVEN)
    assert (session["must_change_password"], session["can"]) == (True, ["change_password"])
    refused = client.get("/api/v1/tenants")
    assert (refused.status_code, refused.json()["code"]) == (403, "password_change_required")

    headers = {"x-csrf-token": session["csrf_token"]}
    for current, new, status in ((CHOSEN, GIVEN, 400), (GIVEN, GIVEN, 400), (GIVEN, "short", 400)):
        wrong = client.put("/api/v1/session/password", json={"current": current, "new": new}, headers=headers)
        assert wrong.status_code == status, (current, new)
    done = client.put("/api/v1/session/password", json={"current": GIVEN, "new": CHOSEN}, headers=headers)
    assert (done.status_code, done.json()["must_change_password"]) == (200, False)
    assert client.get("/api/v1/tenants").status_code == 200

    await ensure_admin(db, peppers, email, GIVEN, must_change=True)  # as at each start of a container
    assert client.get("/api/v1/tenants").status_code == 200
    assert log_in(client, email, CHOSEN)["must_change_password"] is False


def test_a_change_of_a_password_is_one_attempt(
    client: Client, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted twice, one that was made could be answered with a refusal, and nobody would be logged in."""
    monkeypatch.setattr(service, "ATTEMPTS_PAIR", 2)
    headers = {"x-csrf-token": log_in(client, operator.email, operator.password)["csrf_token"]}
    wanted = {"current": operator.password, "new": CHOSEN}
    changed = client.put("/api/v1/session/password", json=wanted, headers=headers)
    assert changed.status_code == 200, changed.text
    assert client.get("/api/v1/session").json() == changed.json()


def test_all_sessions_of_an_account_end_at_once(client: Client, operator: Operator) -> None:
    cookies = []
    for _ in range(2):
        client.cookies.clear()
        csrf = log_in(client, operator.email, operator.password)["csrf_token"]
        cookies.append(client.cookies["motet_session"])
    assert client.delete("/api/v1/sessions", headers={"x-csrf-token": csrf}).status_code == 204
    for cookie in cookies:
        client.cookies.clear()
        assert client.get("/api/v1/session", headers={"cookie": f"motet_session={cookie}"}).status_code == 401
    client.cookies.clear()
    log_in(client, operator.email, operator.password)
    assert client.get("/api/v1/session").status_code == 200


def test_a_session_is_new_with_each_log_in(client: Client, operator: Operator) -> None:
    """A cookie that somebody else set before names nothing, and is replaced."""
    login = {"email": operator.email, "password": operator.password}
    headers = {"cookie": "motet_session=chosen-by-somebody-else"}
    answer = client.post("/api/v1/session", json=login, headers=headers)
    assert answer.status_code == 201
    assert "chosen-by-somebody-else" not in answer.headers["set-cookie"]
    client.cookies.clear()
    assert client.get("/api/v1/session", headers=headers).status_code == 401


async def test_looking_keeps_no_session_alive(redis: Redis) -> None:
    sessions = SessionStore(redis, idle_s=60, life_s=3600)
    cookie, _ = await sessions.open(uuid4(), None)
    (key,) = [each async for each in redis.scan_iter("{motet-session}:*") if await redis.pttl(each) < 61_000]
    await redis.pexpire(key, 5_000)
    assert await sessions.find(cookie, touch=False) is not None
    assert await redis.pttl(key) <= 5_000
    assert await sessions.find(cookie) is not None
    assert await redis.pttl(key) > 50_000


@pytest.mark.parametrize("touch", ["false", "0"])
async def test_however_it_is_written_a_look_at_a_session_keeps_it_not_alive(
    client: Client, operator: Operator, redis: Redis, touch: str
) -> None:
    log_in(client, operator.email, operator.password)
    key = "{motet-session}:" + hashlib.sha256(client.cookies["motet_session"].encode()).hexdigest()
    assert await redis.pexpire(key, 5_000)
    assert client.get("/api/v1/session", params={"touch": touch}).status_code == 200
    assert await redis.pttl(key) <= 5_000
    assert client.get("/api/v1/session").status_code == 200
    assert await redis.pttl(key) > 50_000


def test_whatever_its_case_an_https_url_gives_a_cookie_for_https_only(client: Client) -> None:
    settings: Settings = client.app.state.services.settings
    for url in ("https://motet.example", "HTTPS://motet.example/path"):
        assert session_cookie(settings.model_copy(update={"public_url": url}), "x").secure


async def test_no_session_outlives_its_life(redis: Redis) -> None:
    sessions = SessionStore(redis, idle_s=3600, life_s=0.05)
    cookie, kept = await sessions.open(uuid4(), None)
    assert kept.ends_at <= time.time() + 0.06
    while time.time() < kept.ends_at:
        await redis.ping()
    assert await sessions.find(cookie) is None
