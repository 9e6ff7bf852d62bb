"""Each thing that can be wrong before a start is one clear line."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.local.layout import Home
from deploy.local.preflight import (
    PreflightError,
    check_disk,
    check_home,
    check_port,
    check_python,
    only_one,
    wait_for_remains,
)

REPOSITORY = Path(__file__).resolve().parents[2]


def motet_up(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deploy.cli", "up", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = motet_up("--port", str(port), "--home", str(tmp_path))
    assert done.returncode == 1
    assert done.stdout.strip() == f"motet: port {port} is in use: stop what listens there, or use --port"


def test_a_home_that_is_a_file_is_named(tmp_path: Path) -> None:
    home = tmp_path / "var"
    home.write_text("")
    done = motet_up("--home", str(home))
    assert done.returncode == 1
    assert done.stdout.strip().startswith(f"motet: {home} can't be written")


def test_a_free_port_passes() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    check_port(port)


def test_an_old_python_is_named() -> None:
    with pytest.raises(PreflightError, match=r"Python 3\.11 or newer is needed, this is 3\.10"):
        check_python((3, 10))


def test_a_full_disk_says_how_much_is_needed(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="almost full: 12 MB free, 1500 MB needed"):
        check_disk(tmp_path, 12_000_000, 1_500)


def test_a_database_without_secrets_is_explained(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    with pytest.raises(PreflightError, match=r"holds a database but no secrets\.json"):
        check_home(Home(tmp_path))


@pytest.mark.parametrize("content", ['{"pepper": "x', "[]", '{"pepper": 1}'])
def test_half_written_secrets_are_explained(tmp_path: Path, content: str) -> None:
    (tmp_path / "secrets.json").write_text(content)
    with pytest.raises(PreflightError, match=r"secrets\.json .*start anew by deleting"):
        check_home(Home(tmp_path))


def test_a_second_supervisor_on_one_home_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with only_one(home):
        done = motet_up("--home", str(tmp_path))
    assert done.returncode == 1
    assert f"in use by another `motet up` (pid {os.getpid()})" in done.stdout


def test_the_lock_ends_with_its_holder(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with only_one(home):
        pass
    with only_one(home):
        assert home.lock.read_text() == str(os.getpid())


def test_what_a_killed_start_left_is_waited_for(tmp_path: Path) -> None:
    program = [sys.executable, "-c", "import time; time.sleep(0.7)", "deploy.cli"]
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    began = time.monotonic()
    with subprocess.Popen(program, env={**os.environ, "MOTET_HOME": str(here)}) as left:
        wait_for_remains(Home(elsewhere))
        assert left.poll() is None
        wait_for_remains(Home(here))
        assert left.poll() is not None
    assert time.monotonic() - began > 0.5


def test_what_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.local.preflight.REMAINS_S", 0.2)
    program = [sys.executable, "-c", "import time; time.sleep(60)", "gateway.worker"]
    with subprocess.Popen(program, env={**os.environ, "MOTET_HOME": str(tmp_path)}) as left:
        with pytest.raises(PreflightError, match=rf"still run on {tmp_path}: end them \({left.pid}\)"):
            wait_for_remains(Home(tmp_path))
        left.kill()
