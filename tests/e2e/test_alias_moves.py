"""Re-upload under the same name, and aliases moved to and fro, under load on two workers: the short form of
tests/acceptance/test_alias_moves.py."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from uuid import uuid4

import httpx

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.alias_moves import Move, Traffic, answers_of, under_load, upload
from tests.churn import PROMPTS, long_prompt
from tests.fuzzing import fresh_key

CLIENTS = 4
TOKENS = 8


async def test_no_token_of_the_old_version_after_the_alias_moved(
    base_url: str, admin: httpx.Client, demo_model_dir: Path, base_model: str, tmp_path: Path
) -> None:
    base, name = BaseSpec.from_dir(demo_model_dir, base_model), f"moves-{uuid4().hex[:8]}"
    recipes = [Recipe(seed, rank=4, targets=["q_proj", "down_proj"], std=0.08) for seed in (21, 22)]
    folders = [write_adapter(tmp_path / str(recipe.seed), base, recipe) for recipe in recipes]
    prompts = [PROMPTS[0], long_prompt(3, 60)]  # asked again and again: they lie in the prefix cache
    with fresh_key(admin) as key:
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=base_url, headers=headers, timeout=120) as client:
            for folder in folders:
                await upload(client, name, folder)
            alone = {n: await answers_of(client, f"{name}@{n}", prompts, TOKENS) for n in (1, 2)}
            assert all(alone[1][prompt] != alone[2][prompt] for prompt in prompts)
            again = f"{name}-again"  # each run begins with its first version only
            await upload(client, again, folders[0])
            traffic = Traffic(again, alone, TOKENS, [Move(1, time.monotonic(), time.monotonic())])

            async def put(version: int) -> None:
                answer = await client.put(f"/v1/adapters/{again}/aliases/live", json={"version": version})
                assert answer.status_code == 200, answer.text

            moves: list[tuple[int, Callable[[], Awaitable[object]]]]
            moves = [(2, partial(upload, client, again, folders[1]))]
            moves += [(number, partial(put, number)) for number in (1, 2, 1, 2)]
            await under_load(client, traffic, prompts, moves, clients=CLIENTS, every=CLIENTS + 2)
    assert traffic.errors == []
    assert traffic.wrong == []
    assert {one.version for one in traffic.seen} == {1, 2}
    assert len(traffic.seen) > len(moves) * CLIENTS
    assert traffic.num_across > 0
