"""The whole platform by one command: it answers, outlives its children, keeps state, and ends completely."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.running_platform import RunningPlatform, survivors


@pytest.fixture(scope="module")
def own_platform(demo_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    """One that this module may stop and kill; the session's serves other tests."""
    platform = RunningPlatform(tmp_path_factory.mktemp("home"), demo_model_dir, "--workers", "1")
    platform.start()
    yield platform
    platform.stop()


def printed_commands(output: str) -> list[str]:
    return [line.strip() for line in output.splitlines() if line.startswith("  curl ")]


def paste(command: str) -> str:
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_the_printed_commands_work_as_pasted(running_platform: RunningPlatform) -> None:
    pirate, sentiment, foreign = (paste(command) for command in printed_commands(running_platform.said()))
    assert json.loads(pirate)["choices"][0]["message"]["content"]
    assert sentiment.rstrip().endswith("data: [DONE]")
    assert '"usage"' in sentiment
    assert json.loads(foreign)["error"]["code"] == "model_not_found"


def test_the_demo_file_is_complete_and_private(running_platform: RunningPlatform) -> None:
    demo = running_platform.demo()
    assert (running_platform.home / "demo.json").stat().st_mode & 0o777 == 0o600
    assert demo["base_model"] == "smollm2-135m-instruct"
    assert {tenant["name"]: tuple(tenant["adapters"]) for tenant in demo["tenants"]} == {
        "acme": ("pirate", "sentiment-json"),
        "globex": ("shout", "triage"),
    }
    assert all(set(tenant["scopes"]) == {"inference", "adapters:write"} for tenant in demo["tenants"])
    pids = [engine["pid"] for engine in demo["engines"]] + [
        demo["gateway"]["pid"],
        *demo["gateway"]["worker_pids"],
    ]
    assert all(psutil.pid_exists(pid) for pid in pids)


async def test_the_demo_tenants_have_their_limits(platform: dict[str, Any]) -> None:
    root = platform["base_url"].removesuffix("/v1")
    headers = {"authorization": f"Bearer {platform['admin']['token']}"}
    async with (
        aiohttp.ClientSession(root, headers=headers) as session,
        session.get(f"/api/v1/tenants/{platform['tenants'][0]['id']}") as response,
    ):
        tenant = await response.json()
    limits = (tenant["requests_per_minute"], tenant["tokens_per_minute"], tenant["max_parallel"])
    assert limits == (6_000, 2_000_000, 64)


def test_a_second_start_is_fast_and_keeps_keys_and_adapters(own_platform: RunningPlatform) -> None:
    before = own_platform.demo()
    processes = own_platform.processes()
    assert own_platform.stop() < 10
    assert survivors(processes, 0.5) == []

    assert own_platform.start() < 20
    after = own_platform.demo()
    assert after["tenants"] == before["tenants"]
    assert after["admin"] == before["admin"]


def test_a_dead_engine_is_replaced(own_platform: RunningPlatform) -> None:
    before = own_platform.demo()["engines"][0]["pid"]
    psutil.Process(before).kill()
    deadline = time.monotonic() + 60
    while own_platform.demo()["engines"][0]["pid"] in (before, None):
        assert time.monotonic() < deadline, own_platform.said()
        time.sleep(0.2)
    assert "engine-0 was ended by SIGKILL" in own_platform.said()


def test_a_killed_supervisor_leaves_no_orphan(own_platform: RunningPlatform) -> None:
    processes = own_platform.processes()
    own_platform.kill()
    assert survivors(processes, 15) == []
    own_platform.start()  # over the remains of a crash


def test_sigterm_while_starting_leaves_nothing(own_platform: RunningPlatform) -> None:
    own_platform.stop()
    own_platform.launch()
    time.sleep(2)
    processes = own_platform.processes()
    processes[0].send_signal(signal.SIGTERM)
    assert survivors(processes, 10) == []
    own_platform.stop()
