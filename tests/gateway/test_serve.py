"""Real processes: workers come back when killed, and leave with their parent, however it goes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gateway.config import Settings
from gateway.serve import SHARED_MEMORY, ServeError, environment, run_file, serve

PROGRAM = """
from gateway.config import Settings
from gateway.serve import serve
from gateway.telemetry import configure_logging

configure_logging()
serve(Settings(), "127.0.0.1", 0, 2)
"""
PATIENCE_S = 60.0
QUIET_IMPORT = """
import sys
import gateway.worker
print("started", *sorted({"torch", "transformers", "xgrammar"} & set(sys.modules)))
"""


@pytest.fixture
def ready_settings(settings: Settings, demo_model_dir: Path) -> Settings:
    return settings.model_copy(update={"base_model": str(demo_model_dir), "drain_s": 1.0})


@pytest.fixture
def parent(ready_settings: Settings, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (tmp_path / "gateway.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env={**os.environ, **environment(ready_settings)}, stderr=log
        )
        yield process
        process.kill()
        process.wait()


def eventually(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def running(settings: Settings) -> dict[str, Any] | None:
    file = run_file(settings)
    found: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
    return found if found and len(found["worker_pids"]) == 2 else None


def get(settings: Settings, path: str) -> str:
    state = running(settings)
    assert state is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{state['port']}{path}", timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
        return text


def num_health_checks(settings: Settings) -> int:
    """As all workers together count them."""
    mark = 'motet_http_requests_total{method="GET",route="/healthz",status="200"}'
    lines = get(settings, "/metrics").splitlines()
    return sum(int(float(line.removeprefix(mark))) for line in lines if line.startswith(mark))


def is_gone(pid: int) -> bool:
    """Also true for a process that ended and that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_workers_come_back_count_together_and_stop_in_order(
    parent: subprocess.Popen[bytes], ready_settings: Settings
) -> None:
    first = eventually(lambda: running(ready_settings))
    assert first["pid"] == parent.pid
    assert get(ready_settings, "/healthz") == "ok\n"

    eventually(lambda: num_health_checks(ready_settings) == 1)  # counted after it was answered

    victim, other = first["worker_pids"]
    os.kill(victim, signal.SIGKILL)
    second = eventually(
        lambda: (state := running(ready_settings)) and victim not in state["worker_pids"] and state
    )
    assert other in second["worker_pids"]
    for _ in range(20):
        assert get(ready_settings, "/healthz") == "ok\n"
    eventually(lambda: num_health_checks(ready_settings) == 21)

    parent.send_signal(signal.SIGTERM)
    assert parent.wait(PATIENCE_S) == 0
    assert all(is_gone(pid) for pid in second["worker_pids"])
    assert not run_file(ready_settings).exists()


def test_workers_leave_when_their_parent_is_killed(
    parent: subprocess.Popen[bytes], ready_settings: Settings
) -> None:
    state = eventually(lambda: running(ready_settings))
    assert get(ready_settings, "/healthz") == "ok\n"
    assert len(list(SHARED_MEMORY.glob(f"motet-metrics-*-{parent.pid}"))) == SHARED_MEMORY.exists()
    parent.kill()
    eventually(lambda: all(is_gone(pid) for pid in state["worker_pids"]))
    assert not list(SHARED_MEMORY.glob(f"motet-metrics-*-{parent.pid}"))


def test_a_port_in_use_is_one_clear_line(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=f"can't listen on 127.0.0.1:{port}: Address already in use"):
            serve(settings, "127.0.0.1", port, 1)


def test_workers_that_can_not_start_end_the_gateway(settings: Settings, tmp_path: Path) -> None:
    broken = settings.model_copy(update={"base_model": str(tmp_path / "nothing"), "drain_s": 0.1})
    program = PROGRAM.replace(", 2)", ", 1)")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment(broken)},
        capture_output=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )
    assert done.returncode != 0
    assert b"worker 0 can't start" in done.stderr


def test_starting_takes_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", QUIET_IMPORT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["started"]


def test_a_public_url_that_lets_nobody_in_is_refused_before_a_worker_starts(settings: Settings) -> None:
    corp = {
        "id": "a",
        "name": "A",
        "issuer": "https://id.example.com",
        "client_id": "c",
        "client_secret": "s",
    }
    providers = json.dumps([corp])
    for change, why in (
        ({"public_url": "models.example.com"}, "MOTET_PUBLIC_URL is 'models.example.com'"),
        ({"public_url": "http://a.example", "oidc_providers": SecretStr(providers)}, "without TLS"),
        ({"oidc_providers": SecretStr("{}")}, "MOTET_OIDC_PROVIDERS is not a list"),
    ):
        with pytest.raises(ServeError, match=why):
            serve(settings.model_copy(update=change), "127.0.0.1", 0, 1)
