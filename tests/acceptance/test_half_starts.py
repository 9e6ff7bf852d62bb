"""`motet up` killed or interrupted at random points of its first starts: the next one repairs, and begins at
once."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import psutil

from tests.acceptance.conftest import Record
from tests.machine import temporary_files
from tests.running_platform import RunningPlatform, survivors

KILLS = 10
INTERRUPTS = 6
LONGEST_S = 12.0


def test_half_starts(demo_model_dir: Path, tmp_path: Path, record: Record) -> None:
    draw = random.Random(1)
    platform = RunningPlatform(tmp_path, demo_model_dir)
    reached: list[str] = []
    slow: list[str] = []
    for _ in range(KILLS):
        reached.append(_begin(platform, draw.uniform(0.2, LONGEST_S)))
        platform.kill()  # and the next one begins while the rest is still ending
    for _ in range(INTERRUPTS):
        reached.append(_begin(platform, draw.uniform(0.2, LONGEST_S)))
        processes = platform.processes()
        took_s = _interrupt(platform)
        left = survivors(processes, 0.5)
        if took_s > 10 or left:
            slow.append(f"after '{reached[-1]}': {took_s:.1f} s, {left}")
    ready_s = platform.start()
    said = platform.said()
    platform.stop()
    record.write(
        f"{KILLS} starts over one new home are killed (SIGKILL) at random, each followed by the next at "
        f"once; {INTERRUPTS} more are interrupted (Ctrl-C). Then one is left to become ready.",
        {
            "last step seen": ", ".join(reached),
            "interrupted starts that took over 10 s or left a process": len(slow),
            "seconds of the last start": round(ready_s, 1),
        },
        "\n".join(f"- {line}" for line in slow),
    )
    assert slow == []
    assert "again in" not in said
    assert temporary_files(tmp_path) == []
    assert not list(tmp_path.glob("*.password"))


def _begin(platform: RunningPlatform, seconds: float) -> str:
    """Starts, waits so long, and gives the last line it said by then. An end before that is a failure."""
    platform.launch()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert psutil.pid_exists(platform.pid), platform.said()
        assert "motet:" not in platform.said(), platform.said()
        time.sleep(0.05)
    lines = platform.said().splitlines()
    return lines[-1] if lines else "nothing"


def _interrupt(platform: RunningPlatform) -> float:
    began = time.monotonic()
    psutil.Process(platform.pid).send_signal(signal.SIGINT)
    platform.stop()
    return time.monotonic() - began
