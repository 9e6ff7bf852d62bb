"""The supervisor on real processes: it restarts with a growing pause, and its end leaves no process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from deploy.local.children import LOG_BYTES, Child, ChildSpec
from deploy.local.supervisor import FIRST_BACKOFF_S, Service, StartFailed, Supervisor
from tests.running_platform import survivors

STUBBORN = "; ".join(
    (
        "import signal, time",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "print('up', flush=True)",
        "time.sleep(60)",
    )
)
PARENT = "; ".join(
    (
        "import subprocess, sys, time",
        f"subprocess.Popen([sys.executable, '-c', {STUBBORN!r}])",
        "time.sleep(60)",
    )
)


def spec(log: Path, program: str) -> ChildSpec:
    return ChildSpec("test", [sys.executable, "-c", program], log)


def wait_for(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Finished(Exception):
    """Ends the endless watch."""


def test_a_process_that_dies_is_started_again_after_a_pause(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(said.append)
    service = Service("test", partial(Child, spec(tmp_path / "log", "import sys; sys.exit(3)")), stage=0)
    supervisor.start(service)
    began = time.monotonic()

    def until_restarted() -> None:
        if service.num_restarts == 2:
            raise Finished
        assert time.monotonic() < began + 30

    with pytest.raises(Finished):
        supervisor.watch(until_restarted)
    supervisor.stop()
    assert time.monotonic() - began >= FIRST_BACKOFF_S + 2 * FIRST_BACKOFF_S
    assert said[0].startswith("test ended with code 3; again in 1 s")


def test_a_death_before_ready_is_one_line_with_its_last_words(tmp_path: Path) -> None:
    supervisor = Supervisor(lambda _line: None)
    program = "import sys; sys.exit('no model there')"
    supervisor.start(Service("engine", partial(Child, spec(tmp_path / "log", program)), stage=0))
    with pytest.raises(StartFailed, match=r"engine ended with code 1; see .*log: no model there"):
        supervisor.wait_until(lambda: False, "the gateway", 20)
    supervisor.stop()


def test_stopping_kills_a_group_that_ignores_the_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = Child(spec(log, PARENT))
    wait_for(lambda: log.read_text().startswith("up"))
    family = [psutil.Process(child.pid), *psutil.Process(child.pid).children()]
    assert len(family) == 2
    child.stop(0.2)
    assert survivors(family, 5) == []


def test_a_large_log_is_put_aside_at_the_next_start(tmp_path: Path) -> None:
    log = tmp_path / "test.log"
    with log.open("wb") as stream:
        stream.truncate(LOG_BYTES + 1)
    Child(spec(log, "print('new')")).wait_or_kill(time.monotonic() + 20)
    assert log.read_text() == "new\n"
    assert (tmp_path / "test.log.1").stat().st_size == LOG_BYTES + 1
