"""`motet up` over S3, PostgreSQL and Redis that are not its own, with two replicas and four workers: it works
end to end, and is honest when the store or a replica is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from deploy.local.services import EmbeddedPostgres, EmbeddedRedis
from tests.acceptance.conftest import Record
from tests.acceptance.test_faults import LEAD_S, MAX_TOKENS, READY_S, at_rest
from tests.churn import PARTS
from tests.faults import PROMPTS, FaultLoad, Question, right_answers
from tests.machine import Machine
from tests.running_platform import RunningPlatform
from tests.s3_server import BUCKET, RunningS3

BOUND_S = 60.0  # in which a store that hangs is given up


@dataclass(frozen=True)
class Outer:
    machine: Machine
    s3: RunningS3


@pytest.fixture
async def outer(demo_model_dir: Path, tmp_path: Path) -> AsyncIterator[Outer]:
    with _servers(tmp_path) as (environment, s3):
        platform = RunningPlatform(
            tmp_path / "home", demo_model_dir, "--replicas", "2", "--workers", "4", environment=environment
        )
        platform.home.mkdir()
        await asyncio.to_thread(platform.start)
        yield Outer(Machine(platform), s3)
        await asyncio.to_thread(platform.stop)


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[dict[str, str], RunningS3]]:
    (folder / "s3").mkdir()
    s3, postgres, redis = RunningS3(folder / "s3"), EmbeddedPostgres(folder), EmbeddedRedis(folder)
    try:
        s3.start()
        postgres.start()
        environment = {
            "MOTET_DATABASE_URL": postgres.superuser_url,
            "MOTET_REDIS_URL": redis.start(),
            "MOTET_STORE_URL": f"s3://{BUCKET}/some/prefix?endpoint={s3.server.endpoint}",
            "AWS_ACCESS_KEY_ID": s3.server.access_key,
            "AWS_SECRET_ACCESS_KEY": s3.server.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        yield environment, s3
    finally:
        redis.stop()
        postgres.stop()
        s3.kill()


async def test_outer_services(outer: Outer, tmp_path: Path, demo_model_dir: Path, record: Record) -> None:
    machine = outer.machine
    keys = {tenant["name"]: tenant["api_key"] for tenant in machine.demo["tenants"]}
    models = (("acme", "pirate"), ("globex", "shout"), ("acme", machine.demo["base_model"]))
    questions = [Question(keys[name], model, prompt) for name, model in models for prompt in PROMPTS]
    answers = await right_answers(machine.base_url, questions, MAX_TOKENS)
    assert not (machine.platform.home / "store").exists()
    assert not (machine.platform.home / "postgres").exists()

    load, stop = FaultLoad(machine.base_url, answers), asyncio.Event()
    running = asyncio.create_task(load.run(stop))
    await asyncio.sleep(LEAD_S)
    machine.one("deploy.cli", "engine").kill()
    ready_s = await machine.until_ready(READY_S)
    await asyncio.sleep(LEAD_S)
    stop.set()
    killed = await running
    figures: dict[str, object] = {
        "one of two replicas is killed": f"{killed}; a completion succeeded after {ready_s:.1f} s"
    }

    base = BaseSpec.from_dir(demo_model_dir, machine.demo["base_model"])
    async with httpx.AsyncClient(
        base_url=machine.base_url, headers={"authorization": f"Bearer {keys['acme']}"}, timeout=200
    ) as client:
        await machine.until_replicas_are_ready(READY_S)
        await _make_cold(machine, client, "sentiment-json")
        outer.s3.kill()
        figures["the store is away"] = await _without_store(client, base, tmp_path)
        await asyncio.to_thread(outer.s3.start)
        figures["the store is back"] = await _with_store(client, base, tmp_path)
    found = await at_rest(machine)
    record.write(
        "`motet up --replicas 2 --workers 4` over a PostgreSQL, a Redis and an S3 server of others. One of "
        "the replicas is killed under load; then the store goes away and comes back.",
        {**figures, "at rest": "; ".join(found) or "clean"},
        "\n".join(f"- {line}" for line in killed.lies[:20]),
    )
    assert killed.lies == []
    assert found == []


async def _make_cold(machine: Machine, client: httpx.AsyncClient, adapter: str) -> None:
    """An upload is hinted to a replica at once: forget it there, in memory and on disk."""
    version = (await client.get(f"/v1/adapters/{adapter}/versions/1")).json()
    owner = next(tenant["id"] for tenant in machine.demo["tenants"] if adapter in tenant["adapters"])
    for replica in machine.demo["engines"]:
        headers = {"authorization": f"Bearer {replica['token']}"}
        async with httpx.AsyncClient(base_url=replica["url"], headers=headers) as engine:
            path = f"/internal/adapters/{version['artefact']}"
            assert (await engine.delete(path, params={"owner": owner})).status_code == 202
    await asyncio.to_thread(_wait_until_gone, machine.platform.home / "cache", version["artefact"])


def _wait_until_gone(cache: Path, artefact: str) -> None:
    for _ in range(100):
        if not list(cache.glob(f"adapters-*/*{artefact}*")):
            return
        time.sleep(0.1)
    raise AssertionError(f"{artefact} is still in {cache}")


async def _without_store(client: httpx.AsyncClient, base: BaseSpec, folder: Path) -> str:
    """What is resident answers; an upload and a cold adapter are refused in bounded time."""
    assert (await _ask(client, "pirate")).status_code == 200
    began = time.monotonic()
    upload, cold = await asyncio.gather(_upload(client, base, folder, 1), _ask(client, "sentiment-json"))
    took_s = time.monotonic() - began
    assert upload.status_code == 503, upload.text
    assert upload.json()["error"]["code"] == "service_unavailable"
    assert cold.status_code == 503, cold.text
    assert cold.json()["error"]["code"] == "adapter_unavailable"
    assert took_s < BOUND_S
    assert (await _ask(client, "pirate")).status_code == 200
    return f"resident adapters answer; an upload and a cold adapter are refused within {took_s:.1f} s"


async def _with_store(client: httpx.AsyncClient, base: BaseSpec, folder: Path) -> str:
    began = time.monotonic()
    assert (await _upload(client, base, folder, 1)).status_code == 201
    while (await _ask(client, "sentiment-json")).status_code != 200:
        assert time.monotonic() - began < BOUND_S
    assert (await _ask(client, "cold-1")).status_code == 200
    return f"both succeed after {time.monotonic() - began:.1f} s"


async def _upload(client: httpx.AsyncClient, base: BaseSpec, folder: Path, seed: int) -> httpx.Response:
    made = write_adapter(folder / f"cold-{seed}", base, Recipe(seed=seed))
    files = {part: (made / part).read_bytes() for part in PARTS}
    return await client.post(f"/v1/adapters/{made.name}/versions", files=files)


async def _ask(client: httpx.AsyncClient, model: str) -> httpx.Response:
    return await client.post("/v1/completions", json={"model": model, "prompt": "Hi", "max_tokens": 2})
