"""`motet up` as a test runs it: the real supervisor and processes, on a free port and a home of its own."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from deploy.local.children import Child, ChildSpec, tail
from deploy.local.models import DEMO_MODEL
from deploy.local.services import free_port

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 15.0


class RunningPlatform:
    """Start it, read what it wrote, stop it as a person would."""

    def __init__(
        self, home: Path, model: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self._environment = dict(environment or {})
        self.port = free_port()
        self._model = model
        self._arguments = arguments
        self._child: Child | None = None

    @property
    def output(self) -> Path:
        return self.home / "up.out"

    @property
    def pid(self) -> int:
        assert self._child is not None, "not started"
        return self._child.pid

    def launch(self) -> None:
        """Begin a start without waiting for it."""
        from engine.kernels.build import cache_directory  # torch: not for sessions that start no platform

        self.output.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "deploy.cli", "up", "--port", str(self.port), "--home", str(self.home)]
        env = {
            "MOTET_BASE_MODEL": str(self._model),
            "MOTET_BASE_NAME": DEMO_MODEL,
            "MOTET_CACHE_DIR": str(cache_directory()),  # kernels built once a machine, not once a home
            **self._environment,
        }
        spec = ChildSpec("up", [*argv, *self._arguments], self.output, env, stop_signal=signal.SIGINT)
        self._child = Child(spec)

    def start(self) -> float:
        """Start and wait until it says that it is ready; the seconds it took."""
        began = time.monotonic()
        self.launch()
        assert self._child is not None
        while "Motet is ready" not in self.said():
            assert self._child.returncode is None, f"motet up ended:\n{self.said()}{self._logs()}"
            assert time.monotonic() < began + START_TIMEOUT_S, f"not ready:\n{self.said()}{self._logs()}"
            time.sleep(0.1)
        return time.monotonic() - began

    def said(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    def demo(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.home / "demo.json").read_text())
        return content

    def stop(self) -> float:
        """Ctrl-C; the seconds until it had ended."""
        if self._child is None:
            return 0.0
        began = time.monotonic()
        self._child.stop(STOP_TIMEOUT_S)
        self._child = None
        return time.monotonic() - began

    def kill(self) -> None:
        assert self._child is not None, "not started"
        self._child.kill()
        self._child = None

    def processes(self) -> list[psutil.Process]:
        """The supervisor and all its descendants."""
        supervisor = psutil.Process(self.pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def _logs(self) -> str:
        logs = sorted((self.home / "log").glob("*.log"))
        return "".join(f"\n--- {path.name}\n{tail(path, 15)}" for path in logs)


def survivors(processes: Iterable[psutil.Process], timeout_s: float) -> list[str]:
    """Those still running after `timeout_s`, described."""
    _, alive = psutil.wait_procs(list(processes), timeout=timeout_s)
    return [f"{process.pid} {process.cmdline()}" for process in alive if process.is_running()]
