"""The long runs' harness: a platform of one's own, and a place for dated results."""

from __future__ import annotations

import json
import platform as machine
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.running_platform import RunningPlatform

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "acceptance"

StartPlatform = Callable[..., RunningPlatform]
Record = Callable[[str, dict[str, Any]], Path]


@pytest.fixture
def start_platform(demo_model_dir: Path, tmp_path: Path) -> Iterator[StartPlatform]:
    """`start_platform("--dtype", "float32", …)`: a platform of the test's own, ended with it."""
    started: list[RunningPlatform] = []

    def start(*arguments: str) -> RunningPlatform:
        platform = RunningPlatform(tmp_path / f"home-{len(started)}", demo_model_dir, *arguments)
        platform.home.mkdir()
        started.append(platform)
        platform.start()
        return platform

    yield start
    for platform in started:
        platform.stop()


@pytest.fixture(scope="session")
def record() -> Record:
    """`record("soak", {...})` writes docs/acceptance/soak.json: the result, when, and on what machine."""

    def write(name: str, result: dict[str, Any]) -> Path:
        RESULTS.mkdir(parents=True, exist_ok=True)
        target = RESULTS / f"{name}.json"
        content = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": _machine(), **result}
        target.write_text(json.dumps(content, indent=2) + "\n")
        return target

    return write


def _machine() -> dict[str, Any]:
    return {
        "cpus": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "architecture": machine.machine(),
        "python": machine.python_version(),
    }
