"""A tenant leaves a running platform: control purges it, down to the replica's disk."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import sqlalchemy as sa
from redis import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from migrations import async_url
from tests.running_platform import RunningPlatform

PARTS = ("adapter_config.json", "adapter_model.safetensors")
WITHIN_S = 60.0  # control looks every ten seconds


def let_grace_pass(database_url: str, tenant: str) -> None:
    async def move() -> None:
        engine = create_async_engine(async_url(database_url))
        past = sa.text("UPDATE offboardings SET purge_after = now() WHERE tenant_id = cast(:tenant AS uuid)")
        async with engine.begin() as connection:
            await connection.execute(past, {"tenant": tenant})
        await engine.dispose()

    asyncio.run(move())


def until_purged(admin: httpx.Client, url: str) -> dict[str, Any]:
    deadline = time.monotonic() + WITHIN_S
    while True:
        found: dict[str, Any] = admin.get(f"{url}/offboarding").json()
        if found["state"] == "purged":
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.5)


def files_of(home: Path, name: str) -> list[Path]:
    return [path for path in home.rglob(f"*{name}*") if "postgres" not in path.parts]


def test_nothing_of_it_is_left_on_disks_in_memory_or_in_redis(
    running_platform: RunningPlatform,
    platform: dict[str, Any],
    base_url: str,
    base_model: str,
    demo_model_dir: Path,
    tmp_path: Path,
) -> None:
    bearer = {"authorization": f"Bearer {platform['admin']['token']}"}
    folder = write_adapter(
        tmp_path / "adapter",
        BaseSpec.from_dir(demo_model_dir, base_model),
        Recipe(7, rank=4, targets=["q_proj"], std=0.05),
    )
    with httpx.Client(base_url=base_url, headers=bearer, timeout=60) as admin:
        name = f"leaver-{uuid4().hex[:8]}"
        tenant = admin.post("/api/v1/tenants", json={"name": name}).json()["id"]
        url = f"/api/v1/tenants/{tenant}"
        key = admin.post(f"{url}/keys", json={"name": "k", "scopes": ["inference", "adapters:write"]}).json()
        mine = {"authorization": f"Bearer {key['secret']}"}
        files = {part: (folder / part).read_bytes() for part in PARTS}
        made = admin.post("/v1/adapters/pirate/versions", files=files, headers=mine)
        assert made.status_code == 201, made.text
        body = {"model": "pirate", "prompt": "Once", "max_tokens": 3}
        once = {**mine, "idempotency-key": "once"}
        assert admin.post("/v1/completions", json=body, headers=once).status_code == 200
        artefact = made.json()["artefact"]
        assert len(files_of(running_platform.home, artefact)) >= 2  # in the store, and a replica's cache

        assert admin.post(f"{url}/offboarding", json={"confirm": name}).status_code == 202
        assert admin.post("/v1/completions", json=body, headers=mine).status_code == 403
        let_grace_pass(platform["database_url"], tenant)
        done = until_purged(admin, url)
        refused = admin.post("/v1/completions", json=body, headers=mine)
        assert refused.status_code in (401, 403)  # a worker may remember for a moment why it refused before

    found = {each["kind"]: each["found"] for each in done["proof"]["deleted"]}
    assert (found["replica_caches"], found["stored_objects"], found["table:api_keys"]) == (1, 1, 1)
    assert found["redis_keys"] > 0
    assert {each["remaining"] for each in done["proof"]["deleted"]} == {0}
    assert {each["table"] for each in done["proof"]["kept"]} >= {"usage_ledger", "offboardings"}
    with Redis.from_url(platform["redis_url"]) as redis:
        assert list(redis.scan_iter(match=f"{{{tenant}}}*")) == []
    deadline = time.monotonic() + 10  # the replica's disk is cleared beside its work
    while left := files_of(running_platform.home, artefact):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
