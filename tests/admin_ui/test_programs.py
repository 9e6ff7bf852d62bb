"""What is missing is said with its reason, whatever apt-get's is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.admin_ui import programs
from tests.admin_ui.programs import NotInstalled, installed, missing

APT = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
  *update*) echo "W: Failed to fetch http://deb.debian.org/debian  Could not resolve 'deb.debian.org'" >&2 ;;
  *install*) {install} ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose only programs are a shell's and an apt-get of the test's."""
    installed.cache_clear()
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        pytest.skip("only root on Debian installs anything")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def place(folder: Path, install: str) -> None:
    apt = folder / "apt-get"
    apt.write_text(APT.format(log=folder / "log", install=install))
    apt.chmod(apt.stat().st_mode | stat.S_IXUSR)


def test_without_a_network_the_message_says_so(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(machine, 'echo "E: Unable to locate package a-browser" >&2; exit 100')
    _by_path(machine, monkeypatch)
    with pytest.raises(NotInstalled, match=r"(?s)Could not resolve.*Unable to locate package a-browser"):
        installed("a-browser")


def test_what_is_installed_is_found_and_not_installed_twice(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(machine, f"printf '#!/bin/sh\\n' > {machine}/a-browser; chmod +x {machine}/a-browser")
    _by_path(machine, monkeypatch)
    assert installed("a-browser") == installed("a-browser") == str(machine / "a-browser")
    asked = (machine / "log").read_text().splitlines()
    assert [line.split()[3] for line in asked] == ["update", "install"]


def test_in_ci_what_is_missing_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="ADMIN UI NOT TESTED: a browser"):
        missing("a browser")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="a browser"):
        missing("a browser")


def _by_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's apt-get rather than the machine's."""
    monkeypatch.setattr(programs, "APT", str(machine / "apt-get"))
