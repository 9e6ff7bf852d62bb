"""Every process killed and hung under load, one by one: honest answers, nothing left, nothing lost."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.conftest import Record
from tests.faults import PROMPTS, FaultLoad, Question, Seen, right_answers
from tests.machine import LEASE_S, Machine
from tests.running_platform import RunningPlatform

MAX_TOKENS = 24
LEAD_S = 2.0  # of load before and after a fault
READY_S = 90.0
SETTLE_S = 60.0


@dataclass(frozen=True)
class Fault:
    """Carried out in a thread, while the load goes on."""

    name: str
    cause: Callable[[Machine], None]
    slowest_s: float = 60.0  # an answer may take so long at most


def kill(*words: str, times: int = 1, pause_s: float = 0.0) -> Callable[[Machine], None]:
    def cause(machine: Machine) -> None:
        for _ in range(times):
            machine.one(*words).kill()
            time.sleep(pause_s * random.uniform(0.3, 1.0))

    return cause


def hang(*words: str, seconds: float) -> Callable[[Machine], None]:
    def cause(machine: Machine) -> None:
        with machine.stopped(*words):
            time.sleep(seconds)

    return cause


FAULTS = (
    Fault("a gateway worker is killed, eight times", kill("gateway.worker", times=8, pause_s=1.5)),
    Fault("the gateway's parent is killed", kill("deploy.cli", "gateway")),
    Fault("the engine server is killed", kill("deploy.cli", "engine")),
    Fault("the engine core is killed", kill("engine.core_process")),
    Fault("control is killed", kill("deploy.cli", "control")),
    Fault("PostgreSQL is killed", kill("bin/postgres")),
    Fault("PostgreSQL hangs for 20 s", hang("postgres", seconds=20)),
    Fault("Redis is killed", kill("redis-server")),
    Fault("Redis hangs for 10 s", hang("redis-server", seconds=10)),
    Fault("the engine core hangs for 20 s", hang("engine.core_process", seconds=20)),
    Fault("the engine core hangs for 60 s", hang("engine.core_process", seconds=60), slowest_s=120),
)


@pytest.fixture
async def machine(demo_model_dir: Path, tmp_path: Path) -> AsyncIterator[Machine]:
    """A platform of its own: what these runs do to it nobody else should see."""
    platform = RunningPlatform(tmp_path, demo_model_dir, *os.environ.get("MOTET_VERIFY_UP", "").split())
    await asyncio.to_thread(platform.start)
    yield Machine(platform)
    await asyncio.to_thread(platform.stop)


async def test_faults(machine: Machine, record: Record) -> None:
    chosen = os.environ.get("MOTET_VERIFY_FAULTS", "")
    keys = {tenant["name"]: tenant["api_key"] for tenant in machine.demo["tenants"]}
    models = (("acme", "pirate"), ("globex", "shout"), ("acme", machine.demo["base_model"]))
    questions = [Question(keys[name], model, prompt) for name, model in models for prompt in PROMPTS]
    answers = await right_answers(machine.base_url, questions, MAX_TOKENS)
    figures: dict[str, object] = {}
    wrong: list[str] = []
    for fault in FAULTS:
        if chosen in fault.name:
            seen, ready_s = await _under(fault, machine, FaultLoad(machine.base_url, answers))
            found = await at_rest(machine)
            figures[fault.name] = (
                f"{seen}; ready after {ready_s:.1f} s; at rest: {'; '.join(found) or 'clean'}"
            )
            print(f"{fault.name}: {figures[fault.name]}", flush=True)
            wrong += [f"{fault.name}: {line}" for line in [*seen.lies, *found]]
            if seen.slowest_s > fault.slowest_s:
                wrong.append(f"{fault.name}: an answer took {seen.slowest_s:.0f} s")
    record.write(
        "Eight clients ask greedy questions whose answers are known to the token, while one part after "
        "another is killed or stopped. `told` = a typed error, before or within an answer; `clean` = the "
        "ledger equals the engines' journals, no request is billed twice, no lease, block or file is left.",
        figures,
        "\n".join(f"- {line}" for line in wrong[:40]),
    )
    assert wrong == []


async def _under(fault: Fault, machine: Machine, load: FaultLoad) -> tuple[Seen, float]:
    stop = asyncio.Event()
    running = asyncio.create_task(load.run(stop))
    await asyncio.sleep(LEAD_S)
    await asyncio.to_thread(fault.cause, machine)
    ready_s = await machine.until_ready(READY_S)
    await asyncio.sleep(LEAD_S)
    stop.set()
    return await running, ready_s


async def at_rest(machine: Machine) -> list[str]:
    """What is not as it must be once the load is over."""
    difference = await machine.difference(SETTLE_S)
    found = [f"missing {name}" for name in difference.missing[:5]]
    found += [f"unequal {name}" for name in difference.unequal[:5]]
    found += [f"billed twice {name}" for name in await machine.billed_twice()]
    return found + await machine.held(LEASE_S + 5)
