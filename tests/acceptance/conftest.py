"""Long runs against `motet up` (`make verify [ONLY=name]`), each with a dated record in docs/acceptance/."""

from __future__ import annotations

import os
import platform as machine
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "docs" / "acceptance"
SHORT_FORM = (
    "**Short form** (`MOTET_VERIFY_SHORT=1`): fewer rounds than the claim names, on a machine that "
    "others used "
    "meanwhile. Only counts are recorded; times would say nothing."
)


@dataclass(frozen=True)
class Record:
    """Writes what a run measured."""

    name: str

    def write(self, claim: str, figures: Mapping[str, object], notes: str = "") -> Path:
        """A page of its own for each day and run; a later run of the same day replaces it."""
        RECORDS.mkdir(parents=True, exist_ok=True)
        path = RECORDS / f"{datetime.now(UTC):%Y-%m-%d}-{self.name}.md"
        rows = [f"| {name} | {value} |" for name, value in figures.items()]
        lines = [
            f"# {self.name.replace('_', ' ')}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "",
            claim,
            "",
            *([SHORT_FORM, ""] if is_short() else []),
            f"Command: `make verify ONLY={self.name}` at {_revision()}. Machine: {_machine()}.",
            "",
            "| measured | value |",
            "|---|---|",
            *rows,
            *(["", notes] if notes else []),
        ]
        path.write_text("\n".join(lines) + "\n")
        return path


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    return Record(Path(str(request.node.path)).stem.removeprefix("test_"))


@pytest.fixture
def base_url(platform: dict[str, Any]) -> str:
    return str(platform["base_url"]).removesuffix("/").removesuffix("/v1")


@pytest.fixture
def admin(base_url: str, platform: dict[str, Any]) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {platform['admin']['token']}"}
    with httpx.Client(base_url=base_url, headers=headers, timeout=120) as client:
        yield client


@pytest.fixture
def engine(platform: dict[str, Any]) -> Iterator[httpx.Client]:
    replica = platform["engines"][0]
    headers = {"authorization": f"Bearer {replica['token']}"}
    with httpx.Client(base_url=replica["url"], headers=headers, timeout=60) as client:
        yield client


def is_short() -> bool:
    """Whether `MOTET_VERIFY_SHORT` asks for the short forms of the runs that have one."""
    return bool(os.environ.get("MOTET_VERIFY_SHORT"))


def times(full: int, short: int) -> int:
    """How often, in the form that was asked for."""
    return short if is_short() else full


def seconds(name: str, default: float) -> float:
    """How long a run takes: MOTET_VERIFY_<name>_S, or its full length."""
    return float(os.environ.get(f"MOTET_VERIFY_{name}_S", default))


def _revision() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "an unknown revision"


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} CPU cores ({machine.machine()}), {memory:.0f} GiB memory, "
        f"Python {sys.version_info.major}.{sys.version_info.minor}, CPU replica; "
        f"load average of the last 15 minutes {os.getloadavg()[2]:.1f}"
    )
