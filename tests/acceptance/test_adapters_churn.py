"""Forty random adapters over eight slots, 64 streams, ten minutes: no wrong answer, no error, no leak."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx

from adapters.base import BaseSpec
from deploy.bench.random_adapters import mixed_recipe, write_adapter
from tests.acceptance.conftest import Record, seconds
from tests.churn import PROMPTS, Footprint, Question, answers_alone, churn, long_prompt, upload_all
from tests.fuzzing import fresh_key

ADAPTERS = 40
STREAMS = 64
LONG_PROMPTS = (70, 150, 320, 600)  # words; a step computes at most 256 tokens
SAMPLE_S = 5.0
MAX_GROWTH_BYTES = 200 * 2**20
"""Of all processes together, from the end of the warm-up (a quarter of the run) to its end."""


async def test_adapters_churn(
    base_url: str,
    admin: httpx.Client,
    engine: httpx.Client,
    platform: dict[str, Any],
    demo_model_dir: Path,
    tmp_path: Path,
    record: Record,
) -> None:
    base = BaseSpec.from_dir(demo_model_dir, platform["base_model"])
    folders = [
        write_adapter(tmp_path / f"churn-{seed}", base, mixed_recipe(seed, max_rank=64))
        for seed in range(ADAPTERS)
    ]
    run_s = seconds("CHURN", 600)
    pids = [platform["gateway"]["pid"], *(replica["pid"] for replica in platform["engines"])]
    with fresh_key(admin) as key:
        headers = {"authorization": f"Bearer {key}"}
        limits = httpx.Limits(max_connections=STREAMS + 8)
        async with httpx.AsyncClient(
            base_url=base_url, headers=headers, timeout=600, limits=limits
        ) as client:
            alone = await answers_alone(client, _questions(await upload_all(client, folders)))
            samples: list[Footprint] = []
            watching = asyncio.create_task(_watch(pids, samples))
            outcome = await churn(client, alone, streams=STREAMS, until=time.monotonic() + run_s)
            watching.cancel()
    state = await asyncio.to_thread(_idle_state, engine)
    warm, last = samples[len(samples) // 4], samples[-1]
    stats = state["stats"]
    record.write(
        f"{ADAPTERS} random adapters (ranks 1 to 64, mixed) over {state['core']['num_slots']} slots, "
        f"{STREAMS} clients, streams and whole answers, prompts of 4 to {LONG_PROMPTS[-1]} words: token ids "
        "of each greedy answer against its adapter's answer alone.",
        {
            "seconds of load": round(outcome.seconds),
            "answers": outcome.answers,
            "wrong answers": len(outcome.wrong),
            "errors": len(outcome.errors),
            "distinct answers alone": f"{len(set(alone.values()))} of {len(alone)}",
            "adapter loads": stats["adapter_loads_total"],
            "adapter evictions": stats["adapter_evictions_total"],
            "preemptions": stats["preemptions_total"],
            "prompt tokens asked for, and found in the prefix cache": (
                f"{stats['cache_query_tokens_total']}, {stats['cache_hit_tokens_total']}"
            ),
            "resident MiB after warm-up, at the end": f"{warm.rss_bytes >> 20}, {last.rss_bytes >> 20}",
            "open files after warm-up, at the end": f"{warm.files}, {last.files}",
            "threads after warm-up, at the end": f"{warm.threads}, {last.threads}",
            "blocks used when idle": stats["blocks_used"],
        },
        "\n".join(f"- {line}" for line in [*outcome.wrong[:20], *outcome.errors[:20]]),
    )
    assert outcome.errors == []
    assert outcome.wrong == []
    assert stats["blocks_used"] == 0
    assert stats["adapter_evictions_total"]["device"] > ADAPTERS
    assert last.rss_bytes - warm.rss_bytes < MAX_GROWTH_BYTES
    assert last.files <= warm.files + 16
    assert last.threads <= warm.threads + 8


def _questions(names: list[str]) -> list[Question]:
    prompts = [*PROMPTS[:2], *(long_prompt(seed, words) for seed, words in enumerate(LONG_PROMPTS))]
    return [Question(name, prompt, 16) for name in names for prompt in prompts]


async def _watch(pids: list[int], samples: list[Footprint]) -> None:
    while True:
        samples.append(await asyncio.to_thread(Footprint.of, pids))
        await asyncio.sleep(SAMPLE_S)


def _idle_state(engine: httpx.Client) -> dict[str, Any]:
    """The engine's state once nothing runs."""
    for _ in range(100):
        state: dict[str, Any] = engine.get("/internal/state", params={"once": 1}).json()
        if state["stats"]["running"] == state["stats"]["blocks_used"] == 0:
            break
        time.sleep(0.2)
    return state
