"""Child processes: each in a process group of its own, tied to our life, its output in a bounded log file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

LAUNCH = Path(__file__).with_name("launch.py")
LOG_BYTES = 16 * 1024 * 1024  # a log larger than this moves to .1 when its process starts
POLL_S = 0.05


@dataclass(frozen=True)
class Account:
    """A system user that a program runs as."""

    uid: int
    gid: int


@dataclass(frozen=True)
class ChildSpec:
    """What to run. `stop_signal` asks for an orderly end, and is also what the kernel sends when we die."""

    name: str
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)  # on top of ours
    cwd: Path | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    account: Account | None = None


class Child:
    """One running program and its process group."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self._process = _spawn(spec)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: the signal that ended it."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        if self.returncode is None:
            self._process.send_signal(self.spec.stop_signal)

    def stop(self, timeout_s: float) -> None:
        """Ask, wait, then kill what is left of the group. Returns when the group is gone."""
        self.ask_to_stop()
        self.wait_or_kill(time.monotonic() + timeout_s)

    def wait_or_kill(self, deadline: float) -> None:
        """Wait for the program until `deadline` (monotonic seconds), then kill its whole group."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
        kill_group(self.pid)  # grandchildren that outlived it

    def kill(self) -> None:
        kill_group(self.pid)
        self._process.wait()

    def last_words(self, num_lines: int = 12) -> str:
        return tail(self.spec.log, num_lines)


def kill_group(pgid: int) -> None:
    try:
        os.killpg(pgid, signal.SIGKILL)
    except ProcessLookupError:
        return


def tail(path: Path, num_lines: int) -> str:
    """The end of a log file, at most 16 KiB of it."""
    if not path.exists():
        return ""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 16_384))
        lines = stream.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-num_lines:])


def _spawn(spec: ChildSpec) -> subprocess.Popen[bytes]:
    account = spec.account or Account(-1, -1)
    launcher = [sys.executable, "-I", "-S", str(LAUNCH)]
    limits = [str(os.getpid()), str(int(spec.stop_signal)), str(account.uid), str(account.gid), "--"]
    with _open_log(spec.log) as log:
        return subprocess.Popen(  # noqa: S603 - programs of our own choosing
            [*launcher, *limits, *spec.argv],
            env={**os.environ, **spec.env},
            cwd=spec.cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )


def _open_log(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_suffix(path.suffix + ".1"))
    return path.open("ab")
