"""Programs of the machine that these tests drive: where one is missing and may be installed (root on Debian),
it is. Otherwise a loud skip, and a failure where CI is set."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

UPDATE_S, INSTALL_S = 300, 900
LOCK_S = 300  # that another apt or dpkg may hold the machine's lock
APT = "apt-get"
LINES = 4


class NotInstalled(Exception):
    """What is missing, why it could not be installed, and what to do."""


def need(program: str) -> str:
    """Its path; else the test is skipped, or fails where CI is set."""
    try:
        return installed(program)
    except NotInstalled as error:
        missing(str(error))


def need_chromium() -> str:
    try:
        return chromium()
    except NotInstalled as error:
        missing(str(error))


def chromium() -> str:
    """Chromium without its own windows, which costs half as much as with them; else with them. Raises
    `NotInstalled`."""
    try:
        return installed("chromium-headless-shell")
    except NotInstalled:
        return installed("chromium")


def missing(what: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(f"ADMIN UI NOT TESTED: {what}")


@functools.cache
def installed(program: str) -> str:
    """Debian's package of that name brings it. Raises `NotInstalled`."""
    found = shutil.which(program)
    if found is not None:
        return found
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists() or shutil.which(APT) is None:
        raise NotInstalled(
            f"there is no {program}; root on Debian would install it: apt-get install {program}"
        )
    with _one_at_a_time():
        found = shutil.which(program)  # another process of this run may have brought it meanwhile
        if found is None:
            _install(program)
            found = shutil.which(program)
    if found is None:
        raise NotInstalled(f"Debian's package {program} brought no program of that name")
    return found


def _install(program: str) -> None:
    """Lists that can't be had are no end yet: those of before may do."""
    updated = _apt(UPDATE_S, "update")
    done = _apt(INSTALL_S, "install", "--yes", "--no-install-recommends", program)
    if done.returncode != 0:
        said = [*_last_lines(updated), *_last_lines(done)]
        raise NotInstalled(f"there is no {program}, and apt-get could not install it:\n" + "\n".join(said))


def _apt(timeout_s: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    with _no_service_started() as environment:
        argv = [APT, "--quiet", "--option", f"DPkg::Lock::Timeout={LOCK_S}", *arguments]
        try:
            return subprocess.run(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, 124, "", f"E: {' '.join(argv)} took over {timeout_s} s")


@contextmanager
def _no_service_started() -> Iterator[dict[str, str]]:
    """Packages of servers start them; here nobody asked for one. Their scripts find these two first."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("invoke-rc.d", "deb-systemd-invoke"):
            stub = Path(folder, name)
            stub.write_text("#!/bin/sh\nexit 0\n")
            stub.chmod(0o755)
        path = f"{folder}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        yield {**os.environ, "PATH": path, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}


def _last_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What apt complains of, which names the way out: no network, a lock, an interrupted dpkg."""
    lines = [
        line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("E:", "W:", "Err:"))
    ]
    return lines[-LINES:]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    with Path(tempfile.gettempdir(), "motet-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
