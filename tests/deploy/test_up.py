"""The whole platform by one command: it answers, outlives its children, keeps state, and ends completely."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import aiohttp
import httpx
import psutil

from tests.running_platform import RunningPlatform, survivors


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
    scopes = {"inference", "adapters:write", "usage:read"}
    assert all(set(tenant["scopes"]) == scopes for tenant in demo["tenants"])
    pids = [engine["pid"] for engine in demo["engines"]] + [
        demo["gateway"]["pid"],
        *demo["gateway"]["worker_pids"],
        demo["control"]["pid"],
    ]
    assert all(psutil.pid_exists(pid) for pid in pids)


def test_control_leads_and_tells_of_its_jobs(running_platform: RunningPlatform) -> None:
    url = f"{running_platform.demo()['control']['url']}/metrics"
    deadline = time.monotonic() + 20
    while "motet_control_leads 1.0" not in (said := httpx.get(url, timeout=10).text):
        assert time.monotonic() < deadline, said
        time.sleep(0.1)
    assert "motet_control_oldest_unsettled_seconds" in said


async def test_the_demo_tenants_have_their_limits(running_platform: RunningPlatform) -> None:
    platform = running_platform.demo()
    root = platform["base_url"].removesuffix("/v1")
    headers = {"authorization": f"Bearer {platform['admin']['token']}"}
    async with (
        aiohttp.ClientSession(root, headers=headers) as session,
        session.get(f"/api/v1/tenants/{platform['tenants'][0]['id']}") as response,
    ):
        tenant = await response.json()
    limits = (tenant["requests_per_minute"], tenant["tokens_per_minute"], tenant["max_parallel"])
    assert limits == (6_000, 2_000_000, 64)


# What follows kills and restarts the session's platform, and leaves it running: same address, same keys.


def test_a_dead_engine_is_replaced(running_platform: RunningPlatform) -> None:
    before = running_platform.demo()["engines"][0]
    psutil.Process(before["pid"]).kill()
    deadline = time.monotonic() + 60
    while running_platform.demo()["engines"][0]["pid"] in (before["pid"], None):
        assert time.monotonic() < deadline, running_platform.said()
        time.sleep(0.2)
    assert running_platform.demo()["engines"][0]["url"] == before["url"]
    assert "engine-0 was ended by SIGKILL" in running_platform.said()


def test_a_second_start_keeps_keys_and_adapters(running_platform: RunningPlatform) -> None:
    before = running_platform.demo()
    processes = running_platform.processes()
    assert running_platform.stop() < 10
    assert survivors(processes, 0.5) == []

    running_platform.start()
    after = running_platform.demo()
    assert after["tenants"] == before["tenants"]
    assert after["admin"] == before["admin"]


def test_a_killed_supervisor_leaves_no_orphan(running_platform: RunningPlatform) -> None:
    processes = running_platform.processes()
    running_platform.kill()
    assert survivors(processes, 15) == []
    running_platform.start()  # over the remains of a crash
    answer = json.loads(paste(printed_commands(running_platform.said())[0]))
    assert answer.get("model") == "pirate", answer


def test_sigterm_while_starting_leaves_nothing(demo_model_dir: Path, tmp_path: Path) -> None:
    platform = RunningPlatform(tmp_path, demo_model_dir)
    platform.launch()
    deadline = time.monotonic() + 60
    while "Gateway and engine" not in platform.said():
        assert time.monotonic() < deadline, platform.said()
        time.sleep(0.1)
    processes = platform.processes()
    processes[0].send_signal(signal.SIGTERM)
    assert survivors(processes, 10) == []
    assert platform.stop() < 1
