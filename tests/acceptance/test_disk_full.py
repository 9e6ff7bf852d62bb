"""The disk under the whole home is full for a while, under load, and a worker has to start anew meanwhile."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import httpx
import pytest

from tests.acceptance.conftest import Record
from tests.acceptance.test_faults import LEAD_S, MAX_TOKENS, READY_S, at_rest
from tests.churn import PARTS
from tests.faults import PROMPTS, FaultLoad, Question, right_answers
from tests.machine import Machine
from tests.running_platform import RunningPlatform

DISK_BYTES = 2 * 2**30
FULL_S = 15.0
DEMO = Path(__file__).resolve().parents[2] / "deploy" / "local" / "demo"


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own in a sparse file; skips where it can't be mounted."""
    image, place = folder / "disk", folder / "home"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    made = subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], capture_output=True, check=False)
    mounted = subprocess.run(
        ["mount", "-o", "loop", str(image), str(place)], capture_output=True, check=False
    )
    if made.returncode or mounted.returncode:
        pytest.skip("mounting needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
        image.unlink()


@contextmanager
def filled(place: Path) -> Iterator[None]:
    """Not a byte is left until the block ends."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(place).free - 2**20)
        file.seek(0, os.SEEK_END)
        while _took(file, b"x" * 4_096):
            pass
    try:
        yield
    finally:
        ballast.unlink()


def _took(file: FileIO, data: bytes) -> bool:
    try:
        return file.write(data) == len(data)
    except OSError:
        return False


@pytest.fixture
async def machine(demo_model_dir: Path, tmp_path: Path) -> AsyncIterator[Machine]:
    with small_disk(tmp_path) as home:
        platform = RunningPlatform(home, demo_model_dir)
        await asyncio.to_thread(platform.start)
        yield Machine(platform)
        await asyncio.to_thread(platform.stop)


async def test_disk_full(machine: Machine, record: Record) -> None:
    keys = {tenant["name"]: tenant["api_key"] for tenant in machine.demo["tenants"]}
    models = (("acme", "pirate"), ("globex", "shout"), ("acme", machine.demo["base_model"]))
    questions = [Question(keys[name], model, prompt) for name, model in models for prompt in PROMPTS]
    load = FaultLoad(machine.base_url, await right_answers(machine.base_url, questions, MAX_TOKENS))
    stop = asyncio.Event()
    running = asyncio.create_task(load.run(stop))
    await asyncio.sleep(LEAD_S)
    supervisor = machine.platform.pid
    with filled(machine.platform.home):
        await asyncio.sleep(FULL_S / 3)
        uploads = [await _upload(machine, keys["acme"], n) for n in range(2)]
        machine.workers()[0].kill()
        await asyncio.sleep(FULL_S * 2 / 3)
    ready_s = await machine.until_ready(READY_S)
    await asyncio.sleep(LEAD_S)
    stop.set()
    seen = await running
    found = await at_rest(machine)
    record.write(
        f"The file system of the home is full for {FULL_S:.0f} s under eight clients; two adapters are "
        "uploaded and a gateway worker is killed meanwhile.",
        {
            "answers": str(seen),
            "statuses of the uploads": uploads,
            "ready again after": f"{ready_s:.1f} s",
            "at rest": "; ".join(found) or "clean",
        },
        "\n".join(f"- {line}" for line in seen.lies[:20]),
    )
    assert seen.lies == []
    assert uploads == [503, 503]
    assert machine.platform.pid == supervisor
    assert machine.platform.processes()[0].is_running()
    assert found == []


async def _upload(machine: Machine, key: str, number: int) -> int:
    files = {part: (DEMO / "triage" / part).read_bytes() for part in PARTS}
    headers = {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=machine.base_url, headers=headers, timeout=60) as client:
        return (await client.post(f"/v1/adapters/full-{number}/versions", files=files)).status_code
