"""An adapter that passes every check of its files and overflows when it runs: its proof finds it, and nobody
else notices."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.faults import FaultLoad, Question, right_answers

NAME = "overflows"
MAX_TOKENS = 24
UPLOADS = 4
PARTS = ("adapter_config.json", "adapter_model.safetensors")


@pytest.fixture
def hostile(demo_model_dir: Path, base_model: str, tmp_path: Path) -> dict[str, bytes]:
    base = BaseSpec.from_dir(demo_model_dir, base_model)
    recipe = Recipe(seed=1, rank=8, targets=("v_proj", "o_proj"), std=1e20)
    folder = write_adapter(tmp_path / NAME, base, recipe)
    return {name: (folder / name).read_bytes() for name in PARTS}


async def test_an_adapter_that_overflows_is_refused_alone(
    hostile: dict[str, bytes], base_url: str, api_keys: dict[str, str], base_model: str
) -> None:
    """Over the same blocks and in the same steps, the others' answers keep every token."""
    questions = [
        Question(api_keys[tenant], model, "Tell me about the sea.")
        for tenant, model in (("acme", "pirate"), ("globex", "shout"), ("globex", base_model))
    ]
    answers = await right_answers(base_url, questions, MAX_TOKENS)
    stop = asyncio.Event()
    others = asyncio.create_task(FaultLoad(base_url, answers, streams=6).run(stop))
    headers = {"authorization": f"Bearer {api_keys['acme']}"}
    refusals = []
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=120) as client:
        for number in range(UPLOADS):
            path = f"/v1/adapters/{NAME}-{number}/versions"
            refusals.append(await client.post(path, files=hostile, headers={"prefer": "wait=100"}))
            asked = {"model": f"{NAME}-{number}@1", "prompt": "Tell me.", "max_tokens": 1}
            assert (await client.post("/v1/completions", json=asked)).status_code == 404
    stop.set()
    seen = await others
    assert {(r.status_code, r.json()["error"]["code"]) for r in refusals} == {(422, "proof_failed")}
    assert all("finite" in r.json()["error"]["message"] for r in refusals)
    assert seen.lies == []
    assert (seen.told, seen.broken) == ({}, {})
    assert seen.whole >= 6
