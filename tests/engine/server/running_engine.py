"""Starts `motet engine` as a user would, and looks at it from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

TOKEN = "engine-token-of-the-tests"
BASE_NAME = "smollm2-135m-instruct"
OWNER = "019360a0-0000-7000-8000-000000000001"
MAX_RUNNING = 8
START_S = 120.0
DEMO = Path(__file__).resolve().parents[3] / "deploy" / "local" / "demo"


@dataclass(frozen=True)
class EngineServer:
    """A running replica."""

    url: str
    process: subprocess.Popen[bytes]
    core_pid: int
    folder: Path
    artefacts: dict[str, str]  # demo adapter's name -> artefact id

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {TOKEN}"}

    def log_events(self) -> list[dict[str, Any]]:
        return read_events(self.folder / "log")

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=self.headers, timeout=30)

    def journal(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = self.get("/internal/journal?limit=10000").json()["lines"]
        return lines

    def line_of(self, request: str) -> dict[str, Any]:
        """The request's only journal line, once it is there."""
        lines = wait_for(lambda: [line for line in self.journal() if line["request"] == request])
        assert len(lines) == 1
        line: dict[str, Any] = lines[0]
        return line


def settings_of(model: Path, store: Path, folder: Path) -> dict[str, str]:
    return {
        "MOTET_ENGINE_TOKEN": TOKEN,
        "MOTET_ENGINE_PORT": "0",
        "MOTET_ENGINE_SLOTS": "2",
        "MOTET_ENGINE_MAX_RUNNING": str(MAX_RUNNING),
        "MOTET_ENGINE_TOKEN_BUDGET": "256",
        "MOTET_ENGINE_KV_BYTES": str(64 * 1024**2),
        "MOTET_ENGINE_MAX_MODEL_LEN": "1024",
        "MOTET_ENGINE_THREADS": "1",
        "MOTET_ENGINE_PROOF_NICE": "0",  # a machine full of tests leaves nothing to who waits politely
        "MOTET_BASE_MODEL": str(model),
        "MOTET_BASE_NAME": BASE_NAME,
        "MOTET_STORE_URL": str(store),
        "MOTET_ENGINE_CACHE_DIR": str(folder / "cache"),  # MOTET_CACHE_DIR also holds the built kernels
        "MOTET_JOURNAL_DIR": str(folder / "journal"),
    }


def launch(environment: dict[str, str], folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """`motet engine`, its log in `folder/log`."""
    command = "import sys; from engine.cli import app; app(sys.argv[1:])"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MOTET_")}
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-c", command, *arguments], env=inherited | environment, stdout=log, stderr=log
        )


def read_events(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def wait_for(condition: Callable[[], Any], limit_s: float = START_S) -> Any:
    """The condition's first true answer; an HTTP error counts as "not yet"."""
    until = time.monotonic() + limit_s
    while True:
        try:
            answer = condition()
        except httpx.HTTPError:
            answer = None
        if answer:
            return answer
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
