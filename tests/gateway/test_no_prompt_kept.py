"""What tenants ask and hear is written down nowhere by default, and where they have answers kept, not in
clear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from litestar.testing import TestClient
from pydantic import SecretStr
from redis.asyncio import Redis
from sqlalchemy import String, cast, func, literal_column, select

from gateway.app import create_app
from gateway.config import Settings
from gateway.db import Database
from gateway.models import Base
from tests.gateway.conftest import Operator
from tests.gateway.inference.upstream import TOKEN, Upstream

Client = TestClient[Any]


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream().running() as running:
        yield running


async def tables_with(db: Database, marker: str) -> list[str]:
    async with db.system_reader() as session:
        return [
            table.name
            for table in Base.metadata.sorted_tables
            if await session.scalar(
                select(func.count())
                .select_from(table)
                .where(cast(literal_column(table.name), String).contains(marker))
            )
        ]


async def redis_with(redis: Redis, marker: bytes) -> list[bytes]:
    found = []
    async for key in redis.scan_iter(count=1_000):
        match await redis.type(key):
            case b"string":
                held: Any = await redis.get(key)
            case b"hash":
                held = await redis.hgetall(key)
            case b"zset":
                held = await redis.zrange(key, 0, -1)
            case b"list":
                held = await redis.lrange(key, 0, -1)
            case b"set":
                held = await redis.smembers(key)
            case b"stream":
                held = await redis.xrange(key)
            case _:
                continue  # it ended meanwhile
        if marker in key or marker in repr(held).encode():
            found.append(key)
    return found


def files_with(folder: Path, marker: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and marker in path.read_bytes()]


async def test_a_marker_in_prompts_and_answers_is_found_nowhere_afterwards(
    settings: Settings,
    db: Database,
    redis: Redis,
    demo_model_dir: Path,
    operator: Operator,
    upstream: Upstream,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    marker = f"zq{uuid4().hex}"
    upstream.script.words = [marker[:10], marker[10:20], marker[20:], f" {marker}"]
    more = {"base_model": str(demo_model_dir), "replicas": upstream.url, "engine_token": SecretStr(TOKEN)}
    app = create_app(settings.model_copy(update=more))

    def use(client: Client) -> None:
        name = f"m{uuid4().hex[:8]}"
        tenant = client.post("/api/v1/tenants", json={"name": name}, headers=operator.headers).json()
        url = f"/api/v1/tenants/{tenant['id']}"
        caches = {"response_cache": "seeded"}
        assert client.patch(f"{url}/caches", json=caches, headers=operator.headers).status_code == 200
        made = client.post(f"{url}/keys", json={"name": "k"}, headers=operator.headers).json()
        mine = {"authorization": f"Bearer {made['secret']}"}
        chat = {"model": "base", "messages": [{"role": "user", "content": marker}], "temperature": 0}
        asked: list[tuple[str, dict[str, Any], dict[str, str], int]] = [
            ("chat/completions", chat, {}, 200),
            ("chat/completions", chat, {}, 200),  # from the cache
            ("chat/completions", {**chat, "stream": True, "seed": 1}, {}, 200),
            ("chat/completions", {**chat, "max_tokens": 9}, {"idempotency-key": "once"}, 200),
            ("chat/completions", {**chat, "max_tokens": 9}, {"idempotency-key": "once"}, 200),
            ("completions", {"model": "base", "prompt": marker}, {}, 200),
            ("chat/completions", {**chat, marker: 1}, {}, 400),
            ("chat/completions", {**chat, "temperature": marker}, {}, 400),
            ("chat/completions", {**chat, "model": marker}, {}, 404),
        ]
        for path, body, headers, status in asked:
            answer = client.post(f"/v1/{path}", json=body, headers={**mine, **headers})
            assert answer.status_code == status, answer.text
        upstream.script.cut_before = True
        failed = client.post("/v1/chat/completions", json={**chat, "n": 2}, headers=mine)
        assert failed.status_code >= 500
        assert [path for path in (tmp_path / "journal").rglob("*") if path.is_file()]
        assert files_with(tmp_path, marker.encode()) == []

    def run() -> None:
        with TestClient(app, raise_server_exceptions=False) as client:
            use(client)

    await asyncio.to_thread(run)  # the replica answers on this test's loop
    assert any(marker.encode() in seen.body for seen in upstream.seen.values())
    assert await tables_with(db, marker) == []
    assert await redis_with(redis, marker.encode()) == []
    assert files_with(tmp_path, marker.encode()) == []
    said = "".join(capfd.readouterr())
    assert "request" in said
    assert marker not in said
