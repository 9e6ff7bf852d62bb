"""SIGTERM to `motet up` under 64 open streams: it ends in time, says so to each, and loses no count."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import psutil

from tests.acceptance.conftest import Record
from tests.acceptance.test_faults import at_rest
from tests.faults import PROMPTS, FaultLoad, Question, right_answers
from tests.machine import Machine
from tests.running_platform import RunningPlatform, survivors

STREAMS = 64
MAX_TOKENS = 96
STOP_S = 10.0


async def test_stop_under_load(demo_model_dir: Path, tmp_path: Path, record: Record) -> None:
    platform = RunningPlatform(tmp_path, demo_model_dir)
    await asyncio.to_thread(platform.start)
    machine = Machine(platform)
    keys = {tenant["name"]: tenant["api_key"] for tenant in machine.demo["tenants"]}
    models = (("acme", "pirate"), ("globex", "shout"), ("acme", machine.demo["base_model"]))
    questions = [Question(keys[name], model, prompt) for name, model in models for prompt in PROMPTS]
    answers = await right_answers(machine.base_url, questions, MAX_TOKENS)
    stop = asyncio.Event()
    running = asyncio.create_task(FaultLoad(machine.base_url, answers, streams=STREAMS).run(stop))
    await asyncio.sleep(5)
    processes = platform.processes()
    psutil.Process(platform.pid).send_signal(signal.SIGTERM)
    began = time.monotonic()
    left = await asyncio.to_thread(survivors, processes, STOP_S)
    took_s = time.monotonic() - began
    stop.set()
    seen = await running
    await asyncio.to_thread(platform.stop)
    await asyncio.to_thread(platform.start)
    found = await at_rest(machine)
    await asyncio.to_thread(platform.stop)
    record.write(
        f"`motet up` is told to end (SIGTERM) under {STREAMS} open requests, two thirds of them streams, and "
        "started again: the ledger must then hold what the engine counted.",
        {
            "seconds to the end": f"{took_s:.1f}",
            "processes left": len(left),
            "answers": str(seen),
            "at rest after the next start": "; ".join(found) or "clean",
        },
        "\n".join(f"- {line}" for line in seen.lies[:20]),
    )
    assert left == []
    assert seen.lies == []
    assert found == []
