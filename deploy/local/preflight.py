"""What must hold before anything starts; each failure is one line that says what to do."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from deploy.local.layout import Home

MINIMUM_PYTHON = (3, 11)
FREE_MB_FIRST = 1_500  # database, model folder, adapters, logs of a first start
FREE_MB_AGAIN = 300
REMAINS_S = 15.0  # what a killed start left drains within seconds
OUR_MODULES = {"deploy.cli", "gateway.worker", "engine.core_process"}
OUR_SERVERS = {"postgres", "initdb", "redis-server"}


class PreflightError(RuntimeError):
    """One line for the person at the terminal."""


def check_python(version: tuple[int, ...] = sys.version_info[:2]) -> None:
    if version < MINIMUM_PYTHON:
        found, wanted = ".".join(map(str, version)), ".".join(map(str, MINIMUM_PYTHON))
        raise PreflightError(
            f"Python {wanted} or newer is needed, this is {found}: make run PYTHON=python3.11"
        )


def check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the gateway will
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError as error:
            raise PreflightError(f"port {port} is reserved for root: choose another with --port") from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise PreflightError(
                    f"port {port} can't be used ({error.strerror}): choose another"
                ) from error
            raise PreflightError(f"port {port} is in use: stop what listens there, or use --port") from error


def check_home(home: Home) -> None:
    """Writable, with room, and either new or whole."""
    try:
        home.root.mkdir(parents=True, exist_ok=True)
        probe = home.root / ".writable"
        probe.write_bytes(b"motet")
        probe.unlink()
    except OSError as error:
        raise PreflightError(
            f"{home.root} can't be written ({error.strerror}): choose another with --home"
        ) from error
    known = home.database.exists()
    check_disk(home.root, shutil.disk_usage(home.root).free, FREE_MB_AGAIN if known else FREE_MB_FIRST)
    _check_secrets(home, known)


def check_disk(root: Path, free_bytes: int, needed_mb: int) -> None:
    free_mb = free_bytes // 1_000_000
    if free_mb < needed_mb:
        raise PreflightError(f"the disk of {root} is almost full: {free_mb} MB free, {needed_mb} MB needed")


def _check_secrets(home: Home, known: bool) -> None:
    """A database without its secrets can't be opened, nor can keys hashed with a lost pepper be checked."""
    advice = f"restore it, or start anew by deleting {home.root}"
    if not home.secrets.exists():
        if known:
            raise PreflightError(f"{home.root} holds a database but no secrets.json: {advice}")
        return
    try:
        content = json.loads(home.secrets.read_text())
    except (ValueError, OSError) as error:
        raise PreflightError(f"{home.secrets} can't be read ({error}): {advice}") from error
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise PreflightError(f"{home.secrets} is not a table of secrets: {advice}")


@contextmanager
def only_one(home: Home) -> Iterator[None]:
    """Two supervisors on one home would fight over its database. The lock ends with its process."""
    with home.lock.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            other = f"another `motet up` (pid {lock.read().strip()})"
            raise PreflightError(f"{home.root} is in use by {other}: stop it, or use --home") from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def wait_for_remains(home: Home) -> None:
    """A start that was killed leaves processes that are still ending: their ports, journals and database must
    be free before ours begin."""
    deadline = time.monotonic() + REMAINS_S
    while left := [process.pid for process in psutil.process_iter() if _runs_here(process, home.root)]:
        if time.monotonic() > deadline:
            pids = ", ".join(map(str, left))
            raise PreflightError(f"processes of an earlier start still run on {home.root}: end them ({pids})")
        time.sleep(0.1)


def _runs_here(process: psutil.Process, root: Path) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        command = process.cmdline()
        if command and Path(command[0]).name in OUR_SERVERS:
            return any(argument.startswith(f"{root}{os.sep}") for argument in command[1:])
        return bool(OUR_MODULES.intersection(command)) and process.environ().get("MOTET_HOME") == str(root)
    except psutil.Error:  # gone, or another user's
        return False
