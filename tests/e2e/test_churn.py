"""More adapters than slots: the short form of tests/acceptance/test_adapters_churn.py."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from adapters.base import BaseSpec
from deploy.bench.random_adapters import mixed_recipe, write_adapter
from tests.churn import PROMPTS, Question, answers_alone, churn, long_prompt, upload_all
from tests.fuzzing import fresh_key

ADAPTERS = 10
SECONDS = 8.0


async def test_no_adapter_answers_for_another(
    base_url: str, admin: httpx.Client, demo_model_dir: Path, base_model: str, tmp_path: Path
) -> None:
    base = BaseSpec.from_dir(demo_model_dir, base_model)
    folders = [
        write_adapter(tmp_path / f"churn-{seed}", base, mixed_recipe(seed, max_rank=32))
        for seed in range(ADAPTERS)
    ]
    with fresh_key(admin) as key:
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=300) as client:
            names = await upload_all(client, folders)
            prompts = (PROMPTS[0], long_prompt(1, 300))
            questions = [Question(name, prompt, 6) for name in names for prompt in prompts]
            alone = await answers_alone(client, questions)
            assert len(set(alone.values())) > ADAPTERS  # they do differ
            outcome = await churn(client, alone, streams=16, until=time.monotonic() + SECONDS)
    assert outcome.errors == []
    assert outcome.wrong == []
    assert outcome.answers > ADAPTERS
