"""Half an hour at 70 % of what a replica can do, 40 adapters over 8 slots: flat memory, no error."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from deploy.bench.cases import MIXED
from deploy.bench.load import Ask, Endpoint, Sample, checked, run, run_open
from deploy.bench.prompts import words
from deploy.bench.replica import running_replica, write_adapters
from tests.acceptance.conftest import Record, seconds
from tests.churn import Footprint

LOAD = 0.7
STREAMS = 16
SAMPLE_S = 5.0
MAX_GROWTH = 0.02
"""Of the resident memory of server and core, from the end of the first third to the end: by then every
adapter has been loaded and evicted, and every size of a step has been met."""


async def test_soak(demo_model_dir: Path, tmp_path: Path, record: Record) -> None:
    run_s = seconds("SOAK", 1_800)
    adapters = write_adapters(demo_model_dir, tmp_path / "adapters")
    with running_replica(demo_model_dir, adapters, tmp_path / "replica", slots=8) as replica:
        endpoint = replica.endpoint
        most = await run(endpoint, _asks(endpoint, 160, "capacity"), STREAMS)
        rate = LOAD * len(most.answers) / most.seconds
        samples: list[Footprint] = []
        watching = asyncio.create_task(_watch([replica.pid], samples))
        calls = [(endpoint, ask) for ask in _asks(endpoint, round(run_s * rate), "soak")]
        answers = await run_open(calls, rate, seed=1)
        watching.cancel()
    warm, last = _settled(samples[: len(samples) // 3]), _settled(samples)
    sample = Sample([answer for answer in answers if not answer.error], run_s)
    record.write(
        f"One replica of the demo model, requests at {LOAD:.0%} of the rate that {STREAMS} streams reached "
        "just before, over the base and 40 adapters of rank 8 to 64 in 8 slots, prompts of 4 to 400 words, "
        "answers of 8 to 96 tokens.",
        {
            "seconds of load": round(run_s),
            "requests a second": f"{rate:.2f} of {rate / LOAD:.2f}",
            "answers": len(answers),
            "errors": sum(bool(answer.error) for answer in answers),
            "generated tokens": sum(answer.completion_tokens for answer in answers),
            "time to first token, p50 and p95 (ms)": f"{sample.ttft_ms(0.5):.0f}, {sample.ttft_ms(0.95):.0f}",
            "between tokens, p50 and p95 (ms)": f"{sample.gap_ms(0.5):.1f}, {sample.gap_ms(0.95):.1f}",
            "resident MiB after a third, at the end": f"{warm.rss_bytes >> 20}, {last.rss_bytes >> 20}",
            "open files after a third, at the end": f"{warm.files}, {last.files}",
            "threads after a third, at the end": f"{warm.threads}, {last.threads}",
        },
    )
    checked(answers)
    assert last.rss_bytes <= warm.rss_bytes * (1 + MAX_GROWTH)
    assert last.files <= warm.files + STREAMS
    assert last.threads <= warm.threads + 8


def _asks(endpoint: Endpoint, count: int, seed: str) -> list[Ask]:
    dice = random.Random(seed)
    models = [endpoint.base_model, *MIXED]
    return [
        Ask(
            dice.choice(models),
            words((seed, number), dice.choice((4, 20, 60, 60, 60, 150, 400))),
            dice.choice((8, 32, 64, 96)),
            tenant=f"tenant-{dice.randrange(8)}",
        )
        for number in range(count)
    ]


def _settled(samples: Sequence[Footprint]) -> Footprint:
    """The middle of the last twelve, one minute: steps of different sizes hold different scratch memory."""
    return sorted(samples[-12:], key=lambda footprint: footprint.rss_bytes)[len(samples[-12:]) // 2]


async def _watch(pids: list[int], samples: list[Footprint]) -> None:
    while True:
        samples.append(await asyncio.to_thread(Footprint.of, pids))
        await asyncio.sleep(SAMPLE_S)
