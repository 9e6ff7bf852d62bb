"""What is measured, each a process of its own that is tied to the first core: Motet's gateway with everything
switched on and its real Postgres and Redis, the bare relay, and LiteLLM."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

import migrations
from deploy.local.admin_login import load_or_make_login, register
from deploy.local.children import Child, ChildSpec
from deploy.local.layout import Home
from deploy.local.processes import EnginePlan, Plan
from deploy.local.secret_file import load_or_make_secrets
from deploy.local.services import EmbeddedPostgres, EmbeddedRedis, free_port
from deploy.local.up import SECRETS

READY_S = 120.0
STOP_S = 30.0
MODEL_NAME = "base"
UNLIMITED = 1_000_000_000
"""High enough for every limit to be checked and none to be met."""

ROOM = {
    "MOTET_REPLICA_RUNNING": "4096",
    "MOTET_QUEUE_ITEMS": "8192",
    "MOTET_QUEUE_ITEMS_TENANT": "8192",
}
"""For two thousand streams at a time, where the default is made for one small replica."""


@dataclass(frozen=True)
class Target:
    """A server that answers chats."""

    name: str
    url: str
    headers: Mapping[str, str]
    model: str
    pid: int

    def cpu_s(self) -> float:
        """User and system time of its process tree."""
        return sum(sum(process.cpu_times()[:2]) for process in self._tree())

    def memory_bytes(self) -> int:
        return sum(process.memory_info().rss for process in self._tree())

    def _tree(self) -> list[psutil.Process]:
        parent = psutil.Process(self.pid)
        return [parent, *parent.children(recursive=True)]


def first_core() -> int:
    return min(os.sched_getaffinity(0))


def pinned(core: int, argv: Sequence[str]) -> list[str]:
    """The command, tied to a core with all its threads and children."""
    code = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); os.execvp(sys.argv[2], sys.argv[2:])"
    return [sys.executable, "-c", code, str(core), *argv]


@contextmanager
def running(
    name: str, argv: Sequence[str], log: Path, env: Mapping[str, str], ready: Callable[[], bool]
) -> Iterator[Child]:
    """Raises `RuntimeError` when it doesn't come up."""
    child = Child(ChildSpec(name, argv, log, env, stop_signal=signal.SIGTERM))
    try:
        until = time.monotonic() + READY_S
        while not ready():
            if child.returncode is not None or time.monotonic() > until:
                raise RuntimeError(f"{name} did not become ready:\n{child.last_words()}")
            time.sleep(0.1)
        yield child
    finally:
        child.stop(STOP_S)


@contextmanager
def fake_replica(home: Path) -> Iterator[str]:
    """Its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    argv = [sys.executable, "-m", "deploy.bench.gateway.fake_replica", str(port)]
    with running("fake-replica", argv, home / "fake.log", {}, lambda: _answers(f"{url}/readyz")):
        yield url


@contextmanager
def relay(upstream: str, home: Path, core: int) -> Iterator[Target]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    argv = pinned(core, [sys.executable, "-m", "deploy.bench.gateway.relay", str(port), upstream])
    with running("relay", argv, home / "relay.log", {}, lambda: _answers(f"{url}/")) as child:
        yield Target("relay", f"{url}/v1/chat/completions", {}, MODEL_NAME, child.pid)


@contextmanager
def litellm(program: Path, upstream: str, home: Path, core: int) -> Iterator[Target]:
    """One worker, no database, as its users start it."""
    port, key = free_port(), f"sk-{secrets.token_hex(8)}"
    config = home / "litellm.yaml"
    config.write_text(
        f"model_list:\n  - model_name: {MODEL_NAME}\n    litellm_params:\n      model: openai/{MODEL_NAME}\n"
        f"      api_base: {upstream}/v1\n      api_key: none\ngeneral_settings:\n  master_key: {key}\n"
    )
    url = f"http://127.0.0.1:{port}"
    argv = [
        str(program),
        "--config",
        str(config),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--num_workers",
        "1",
    ]
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    up = lambda: _answers(f"{url}/health/liveliness")  # noqa: E731
    with running("litellm", pinned(core, argv), home / "litellm.log", env, up) as child:
        headers = {"authorization": f"Bearer {key}"}
        yield Target("LiteLLM", f"{url}/v1/chat/completions", headers, MODEL_NAME, child.pid)


@contextmanager
def motet(model: Path, upstream: str, home: Path, core: int) -> Iterator[Target]:
    """One worker with real services and limits at every level, its tenant's response cache on."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    layout = Home(home)
    kept = load_or_make_secrets(layout.secrets, SECRETS)
    with ExitStack() as stack:
        postgres, redis = EmbeddedPostgres(home), EmbeddedRedis(home)
        stack.callback(postgres.stop)
        urls = postgres.start()
        stack.callback(redis.stop)
        redis.start()
        migrations.upgrade(urls.owner)
        engines = EnginePlan(
            home=layout,
            dtype="bf16",
            slots=8,
            model=model,
            base_name=MODEL_NAME,
            store_url=f"file://{layout.store}",
            token=kept["engine_token"],
            ports=(int(upstream.rpartition(":")[2]),),
        )
        keys = (kept["pepper"], kept["data_key"], kept["receipt_key"])
        plan = Plan(engines, free_port(), 1, urls, redis.url, *keys)
        login = load_or_make_login(layout)
        register(login, plan)
        spec = plan.gateway()
        up = lambda: _answers(f"{plan.public_url}/readyz")  # noqa: E731
        argv = pinned(core, spec.argv)
        child = stack.enter_context(running("gateway", argv, spec.log, {**spec.env, **ROOM}, up))
        key = _tenant(plan.public_url, login.token)
        headers = {"authorization": f"Bearer {key}"}
        yield Target("Motet", f"{plan.public_url}/v1/chat/completions", headers, MODEL_NAME, child.pid)


def _tenant(url: str, admin_token: str) -> str:
    """An API key under every limit."""
    limits = dict.fromkeys(("requests_per_minute", "tokens_per_minute", "max_parallel"), UNLIMITED)
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {admin_token}"}, timeout=30) as api:

        def call(method: str, path: str, body: Any) -> Any:
            return api.request(method, path, json=body).raise_for_status().json()

        tenant = call("POST", "/api/v1/tenants", {"name": "bench", **limits})["id"]
        call("PATCH", f"/api/v1/tenants/{tenant}/caches", {"response_cache": "greedy"})
        key = call("POST", f"/api/v1/tenants/{tenant}/keys", {"name": "bench", **limits})
    return str(key["secret"])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310  our own servers
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return error.code == 404  # the relay has nothing there
    except OSError:
        return False
