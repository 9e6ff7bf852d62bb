"""An adapter that passes every check of an upload and overflows when it runs: its own requests alone fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.faults import FaultLoad, Question, right_answers

NAME = "overflows"
MAX_TOKENS = 24


@pytest.fixture
def hostile(acme: httpx.Client, demo_model_dir: Path, base_model: str, tmp_path: Path) -> Iterator[str]:
    base = BaseSpec.from_dir(demo_model_dir, base_model)
    recipe = Recipe(seed=1, rank=8, targets=("v_proj", "o_proj"), std=1e20)
    folder = write_adapter(tmp_path / NAME, base, recipe)
    files = {
        name: (folder / name).read_bytes() for name in ("adapter_config.json", "adapter_model.safetensors")
    }
    answer = acme.post(f"/v1/adapters/{NAME}/versions", files=files)
    assert answer.status_code == 201, answer.text
    yield NAME
    assert acme.delete(f"/v1/adapters/{NAME}").status_code < 300


async def test_an_adapter_that_overflows_fails_alone(
    hostile: str, base_url: str, api_keys: dict[str, str], base_model: str
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
    async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=120) as client:
        asked = [client.post("/v1/completions", json=_ask(hostile, stream)) for stream in (True, False) * 8]
        refusals = await asyncio.gather(*asked)
    stop.set()
    seen = await others
    assert {(r.status_code, r.json()["error"]["code"]) for r in refusals} == {(503, "adapter_unavailable")}
    assert seen.lies == []
    assert (seen.told, seen.broken) == ({}, {})
    assert seen.whole >= 6


def _ask(model: str, stream: bool) -> dict[str, Any]:
    return {"model": model, "prompt": "Tell me about the sea. " * 20, "max_tokens": 8, "stream": stream}
