"""The demo model over three processes, since its nine heads and three KV heads don't divide by two: together
they answer as one, and the end of one is the end of all."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psutil
import pytest

from tests.engine.server.running_engine import DEMO, OWNER, EngineServer, wait_for

PROCESSES = 3


@pytest.fixture
def replica(start_engine: Callable[..., EngineServer]) -> EngineServer:
    return start_engine(
        MOTET_ENGINE_TENSOR_PARALLEL=str(PROCESSES),
        MOTET_ENGINE_DTYPE="float32",
        MOTET_ENGINE_KV_BYTES=str(256 * 1024**2),
    )


def answer(server: EngineServer, name: str, golden: dict[str, Any]) -> str:
    adapter = {"x-motet-artefact": server.artefacts[name], "x-motet-owner": OWNER}
    body = {"model": name, "messages": [{"role": "user", "content": golden["user"]}], "temperature": 0}
    reply = httpx.post(
        f"{server.url}/v1/chat/completions",
        json={**body, "max_tokens": len(golden["token_ids"])},
        headers=server.headers | adapter,
        timeout=120,
    )
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


def test_three_processes_answer_as_one_and_end_as_one(replica: EngineServer) -> None:
    goldens = [
        (name, golden)
        for name in ("pirate", "shout")
        for golden in json.loads((DEMO / name / "golden.json").read_bytes())
    ]
    with ThreadPoolExecutor(8) as pool:  # rows of both adapters in each step
        told = list(pool.map(lambda one: answer(replica, *one), goldens))
    assert told == [golden["text"] for _, golden in goldens]

    core = psutil.Process(replica.core_pid)
    ranks = core.children(recursive=True)
    assert len(ranks) == PROCESSES - 1
    os.kill(ranks[-1].pid, signal.SIGKILL)
    lost = httpx.post(
        f"{replica.url}/v1/chat/completions",
        json={"model": "base", "messages": [{"role": "user", "content": "Are you there?"}]},
        headers=replica.headers,
        timeout=120,
    )
    assert lost.status_code in {500, 503}, lost.text
    wait_for(lambda: not core.is_running() or core.status() == psutil.STATUS_ZOMBIE)
    wait_for(lambda: not any(rank.is_running() and rank.status() != "zombie" for rank in ranks))
