"""An adapter of rank 256 on every site is uploaded and used while others work: their answers keep every
token, and their waits stay within reason."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.acceptance.conftest import Record
from tests.churn import PARTS
from tests.faults import PROMPTS, FaultLoad, Question, Seen, right_answers

MAX_TOKENS = 24
LOAD_S = 10.0
SLOWER = 8.0
"""The longest wait of the others may grow by so much; all share the processor with the upload's proof too."""


async def test_heavy_adapter(
    base_url: str, platform: dict[str, Any], demo_model_dir: Path, tmp_path: Path, record: Record
) -> None:
    keys = {tenant["name"]: tenant["api_key"] for tenant in platform["tenants"]}
    base = BaseSpec.from_dir(demo_model_dir, platform["base_model"])
    folder = await asyncio.to_thread(
        write_adapter, tmp_path / "heavy", base, Recipe(seed=3, rank=256, std=0.02)
    )
    models = (("globex", "shout"), ("globex", "triage"), ("globex", platform["base_model"]))
    questions = [Question(keys[name], model, prompt) for name, model in models for prompt in PROMPTS]
    load = FaultLoad(base_url, await right_answers(base_url, questions, MAX_TOKENS), streams=6)
    before = await _others(load, asyncio.sleep(LOAD_S))
    during = await _others(load, _use(base_url, keys["acme"], folder))
    size = sum((folder / part).stat().st_size for part in PARTS)
    record.write(
        "Six clients of one tenant, before and while another uploads an adapter of rank 256 on all sites "
        "and asks it twelve times, four at a time.",
        {
            "megabytes of the adapter": round(size / 1e6),
            "the others before": str(before),
            "the others meanwhile": str(during),
        },
        "\n".join(f"- {line}" for line in during.lies[:20]),
    )
    assert before.lies == during.lies == []
    assert (during.told, during.broken) == ({}, {})
    assert during.slowest_s < SLOWER * before.slowest_s


async def _others(load: FaultLoad, meanwhile: Any) -> Seen:
    stop = asyncio.Event()
    running = asyncio.create_task(load.run(stop))
    await meanwhile
    stop.set()
    return await running


async def _use(base_url: str, key: str, folder: Path) -> None:
    began = time.monotonic()
    gate = asyncio.Semaphore(4)
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=300) as client:
        files = {part: (folder / part).read_bytes() for part in PARTS}
        upload = await client.post(f"/v1/adapters/{folder.name}/versions", files=files)
        assert upload.status_code == 201, upload.text

        async def ask() -> int:
            async with gate:
                body = {"model": folder.name, "prompt": "Once upon a time " * 20, "max_tokens": 16}
                return (await client.post("/v1/completions", json=body)).status_code

        assert set(await asyncio.gather(*(ask() for _ in range(12)))) == {200}
        assert (await client.delete(f"/v1/adapters/{folder.name}")).status_code < 300
    assert time.monotonic() - began < 200
