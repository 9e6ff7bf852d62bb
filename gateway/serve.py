"""The gateway's parent process: binds the socket, keeps N workers alive, and takes them down in order.

Workers are fresh interpreters that inherit the listening socket. Each has a stable id (0 … N-1), so that
what it writes under that name (its usage journal) is found again by its successor. Each also holds the read
end of a pipe whose write end only the parent has: when the parent is gone, however it went, its workers read
the end of it and leave.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

import structlog
from prometheus_client.multiprocess import mark_process_dead
from pydantic import SecretStr

from gateway.config import Settings
from gateway.oidc.settings import providers_of
from gateway.public_url import PublicUrl
from gateway.sockets import bound_connections
from gateway.telemetry import METRICS_DIR

log = structlog.get_logger(__name__)

BACKLOG: Final = 2048
KILL_AFTER_S: Final = 3.0  # beyond the drain, for what does not stop
LOOK_S: Final = 0.05
START_PAUSE_S: Final = 0.5  # after a failed start; doubles
LONGEST_PAUSE_S: Final = 10.0
ESTABLISHED_S: Final = 30.0  # a worker that lives so long serves
SHORT_LIFE_S: Final = 5.0  # a worker that died sooner is started again after a pause
MAX_FAILED_STARTS: Final = 3  # in a row: the fault won't pass by itself
STARTUP_FAILED: Final = 3  # a worker's exit status when it could not begin to serve

SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  a folder of our own is made in it, and nobody else's used
LISTEN_FD: Final = "MOTET_LISTEN_FD"
LIFE_FD: Final = "MOTET_LIFE_FD"


class ServeError(RuntimeError):
    """The gateway can't start or keep running; the message is one line for the person at the terminal."""


@dataclass(slots=True)
class Worker:
    """One place in the row of workers, and the process that fills it now."""

    worker_id: int
    process: subprocess.Popen[bytes] | None = None
    start_at: float = 0.0  # when to start the next one
    started_at: float = 0.0
    failed_starts: int = 0


@dataclass(slots=True)
class Parent:
    settings: Settings
    listener: socket.socket
    workers: list[Worker]
    metrics: Path
    num_signals: int = 0
    life: tuple[int, int] = field(default_factory=os.pipe)

    def run(self) -> None:
        """Until a signal says stop. Raises `ServeError` when workers can't be kept alive."""
        try:
            while not self.num_signals:
                self._look()
                time.sleep(LOOK_S)
        finally:
            self._stop()

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.num_signals += 1

    def _look(self) -> None:
        changed = False
        for worker in self.workers:
            if worker.process is not None and worker.process.poll() is not None:
                self._bury(worker)
                changed = True
            if worker.process is None and time.monotonic() >= worker.start_at:
                changed = self._try_start(worker) or changed
        if changed:
            self._publish()

    def _try_start(self, worker: Worker) -> bool:
        """A machine out of processes or memory for a moment must not take the other workers with it."""
        try:
            self._start(worker)
        except OSError as error:
            log.warning("worker_not_started", worker=worker.worker_id, reason=str(error))
            worker.start_at = time.monotonic() + START_PAUSE_S
            return False
        worker.started_at = time.monotonic()
        return True

    def _start(self, worker: Worker) -> None:
        listen_fd, (life_fd, _) = self.listener.fileno(), self.life
        worker.process = subprocess.Popen(
            [sys.executable, "-m", "gateway.worker"],
            env={
                **os.environ,
                **environment(self.settings.model_copy(update={"worker_id": worker.worker_id})),
                METRICS_DIR: str(self.metrics),
                LISTEN_FD: str(listen_fd),
                LIFE_FD: str(life_fd),
            },
            pass_fds=(listen_fd, life_fd),
            process_group=0,  # a Ctrl-C reaches the parent alone, which passes it on once
        )

    def _bury(self, worker: Worker) -> None:
        assert worker.process is not None
        code = worker.process.returncode
        log.warning("worker_ended", worker=worker.worker_id, pid=worker.process.pid, returncode=code)
        mark_process_dead(worker.process.pid, str(self.metrics))  # type: ignore[no-untyped-call]
        worker.process = None
        if code not in (1, STARTUP_FAILED):  # 1: the interpreter's own, when an import or a setting fails
            worker.failed_starts = 0
            if time.monotonic() - worker.started_at < SHORT_LIFE_S:
                worker.start_at = time.monotonic() + START_PAUSE_S
            return
        worker.failed_starts += 1
        if worker.failed_starts >= MAX_FAILED_STARTS and not self._others_serve(worker):
            raise ServeError(f"worker {worker.worker_id} can't start; its log says why")
        worker.start_at = time.monotonic() + min(
            LONGEST_PAUSE_S, START_PAUSE_S * 2 ** min(8, worker.failed_starts - 1)
        )

    def _others_serve(self, worker: Worker) -> bool:
        """Then what keeps this one from starting (a database that is away) must not end them too."""
        now = time.monotonic()
        return any(
            other is not worker and other.process is not None and now - other.started_at > ESTABLISHED_S
            for other in self.workers
        )

    def _stop(self) -> None:
        """Terminate all at once, wait for the drain, kill what is left. Further signals go on to them."""
        alive = [worker.process for worker in self.workers if worker.process is not None]
        self.listener.close()  # they have it too: when the last of them stops to listen, nobody does
        deadline = time.monotonic() + self.settings.drain_notice_s + self.settings.drain_s + KILL_AFTER_S
        told = 0
        while (alive := [process for process in alive if process.poll() is None]) and (
            time.monotonic() < deadline
        ):
            if told < max(1, self.num_signals):
                told += 1
                for process in alive:
                    process.send_signal(signal.SIGTERM)
            time.sleep(LOOK_S)
        for process in alive:
            process.kill()
            process.wait()
        run_file(self.settings).unlink(missing_ok=True)

    def _publish(self) -> None:
        """Who runs now, for tools on this machine; replaced in one step. Nothing that serves needs it: a full
        disk leaves it old, and that is all."""
        host, port = self.listener.getsockname()[:2]
        pids = [worker.process.pid for worker in self.workers if worker.process is not None]
        target = run_file(self.settings)
        draft = target.with_suffix(".new")
        text = json.dumps({"pid": os.getpid(), "worker_pids": pids, "host": host, "port": port})
        try:
            draft.write_text(text)
            draft.replace(target)
        except OSError as error:
            log.warning("run_file_not_written", path=str(target), reason=str(error))


def serve(settings: Settings, host: str, port: int, workers: int) -> None:
    """Serve until SIGTERM or SIGINT. Raises `ServeError` when the port is taken, no browser could log in
    under the public URL, or workers don't stay alive."""
    assert workers > 0
    _check_way_in(settings)
    settings = settings.model_copy(update={"workers": workers})
    run_file(settings).parent.mkdir(parents=True, exist_ok=True)
    with (
        _listen(host, port, settings.write_timeout_s) as listener,
        _metrics_folder(settings.home.absolute()) as metrics,
    ):
        parent = Parent(settings, listener, [Worker(n) for n in range(workers)], metrics)
        with _signals(parent):
            log.info("gateway_listening", host=host, port=listener.getsockname()[1], workers=workers)
            parent.run()


def _check_way_in(settings: Settings) -> None:
    """Before a worker is started: three that end one after the other would only say to look into a log."""
    try:
        providers_of(settings)
    except ValueError as error:
        raise ServeError(str(error)) from error
    public = PublicUrl.parse(settings.public_url)
    if not (public.is_secure or public.is_local):
        log.warning("public_url_without_tls", public_url=settings.public_url)


def run_file(settings: Settings) -> Path:
    """`{"pid", "worker_pids", "host", "port"}` of the running gateway."""
    return settings.home.absolute() / "run" / "gateway.json"


def environment(settings: Settings) -> Mapping[str, str]:
    """The settings as the environment that a worker reads them from."""
    named = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if value is not None:
            text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            named[f"MOTET_{name.upper()}"] = text
    return named


@contextmanager
def _metrics_folder(home: Path) -> Iterator[Path]:
    """An empty folder for the counters that workers share, in memory where the system has such a place: they
    are mapped files, and a full disk beneath one kills the worker that writes to it (SIGBUS)."""
    stem = f"motet-metrics-{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"
    for folder in (SHARED_MEMORY / f"{stem}-{os.getpid()}", home / "run" / "metrics"):
        for left in (*SHARED_MEMORY.glob(f"{stem}-*"), folder):
            shutil.rmtree(left, ignore_errors=True)  # of a gateway that was killed
        try:
            folder.mkdir(parents=folder.is_relative_to(home), mode=0o700)
        except OSError:  # no such place here, or somebody else's
            continue
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    raise ServeError(f"no folder for metrics can be made in {home / 'run'}")


@contextmanager
def _listen(host: str, port: int, write_timeout_s: float) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ServeError(f"can't listen on {host}:{port}: {error.strerror}") from error
        bound_connections(listener, write_timeout_s)
        listener.listen(BACKLOG)
        yield listener


@contextmanager
def _signals(parent: Parent) -> Iterator[None]:
    before = {number: signal.signal(number, parent.stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for fd in parent.life:
            os.close(fd)
