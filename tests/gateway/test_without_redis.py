"""A gateway that finds no Redis when it starts: it is ready, says so, and lets known keys in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
from litestar.testing import TestClient
from redis.asyncio import Redis

from deploy.local.services import DatabaseUrls
from gateway import health
from gateway.app import create_app
from gateway.redis import connect
from tests.gateway.conftest import Operator, settings_of


@pytest.fixture
def alone(database: DatabaseUrls, demo_model_dir: Path, tmp_path: Path) -> Iterator[TestClient[Any]]:
    settings = settings_of(database, "redis://127.0.0.1:1/0", tmp_path)
    app = create_app(settings.model_copy(update={"base_model": str(demo_model_dir)}))
    with TestClient(app, raise_server_exceptions=False) as opened:
        yield opened


async def test_one_that_takes_no_writes_is_told(
    client: TestClient[Any], redis: Redis, redis_url: str
) -> None:
    parts = urlsplit(redis_url)
    user, password = f"reader-{uuid4().hex[:8]}", uuid4().hex
    await redis.acl_setuser(
        user, enabled=True, passwords=[f"+{password}"], keys=["*"], commands=["+@read", "+ping"]
    )
    place = f"{user}:{password}@{parts.hostname}:{parts.port}"
    reading = connect(urlunsplit(parts._replace(netloc=place)))
    await reading.ping()
    services = replace(client.app.state.services, redis=reading)
    told = await health._check(lambda: health._redis(services), 3.0)
    await reading.aclose()
    await redis.acl_deluser(user)
    assert (told.outcome.startswith("Redis does not answer, or takes no writes"), told.away) == (True, True)


def test_it_is_ready_and_knows_its_keys(alone: TestClient[Any], operator: Operator) -> None:
    ready = alone.get("/readyz")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert ready.json()["checks"]["database"] == "ok"
    assert ready.json()["checks"]["redis"] != "ok"
    name = f"t-{uuid4().hex[:8]}"
    made = alone.post("/api/v1/tenants", json={"name": name}, headers=operator.headers)
    assert made.status_code == 201, made.text
    root = f"/api/v1/tenants/{made.json()['id']}"
    key = alone.post(
        f"{root}/keys", json={"name": "k", "requests_per_minute": 2}, headers=operator.headers
    ).json()
    headers = {"authorization": f"Bearer {key['secret']}"}
    assert alone.get("/v1/models", headers=headers).status_code == 200
    chat = {"model": "base", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
    first = alone.post("/v1/chat/completions", json=chat, headers=headers)
    assert first.status_code == 503  # let in; no replica is behind this gateway
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    second = alone.post("/v1/chat/completions", json=chat, headers=headers)
    assert second.status_code == 429, second.text  # its share is one of the two
    assert second.json()["error"]["limit"]["limit_id"] == "key.requests_per_minute"
    (now,) = alone.get("/v1/limits", headers=headers).json()["data"]
    assert (now["limit"], now["remaining"]) == (2, 0)
