"""A gateway as it runs in production before fake replicas: real PostgreSQL, Redis, store and control, real
gateway workers in processes of their own. Only what computes is a fake (`fake_replica.py`), so that thousands
of requests a minute are possible and a run may kill what it likes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import create_async_engine

import migrations
from adapters.base import BaseSpec
from deploy.local.children import Child, ChildSpec, tail
from deploy.local.layout import Home
from deploy.local.processes import EnginePlan, Plan
from deploy.local.services import DatabaseUrls, EmbeddedPostgres, EmbeddedRedis, free_port
from gateway.admin_auth.bootstrap import ensure_admin, new_admin_token
from gateway.credentials import Peppers
from gateway.db import Database
from gateway.principal import Scope
from migrations import async_url

ROOT = Path(__file__).resolve().parents[2]
READY_S = 240.0  # beside other work, too
STOP_S = 10.0
EMAIL, PASSWORD = "operator@example.com", "a pass phrase of the rig"
SECRET_SETTINGS = ("DATA_KEY", "RECEIPT_KEY", "REGISTRATION_TOKEN")
AWAY = "away"  # the id of a provider that nobody can reach
ALL_SCOPES = tuple(scope.value for scope in Scope)


@dataclass(frozen=True)
class Shape:
    """How large it is, and what is special. `settings`: MOTET_* of gateway and control, without the prefix;
    `environment`: what others read there."""

    workers: int = 2
    replicas: int = 1
    running: int = 8  # places of each replica
    frame_ms: float = 1.0  # that the replica takes for a token
    broken: int = 0  # of a thousand attempts, break off
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TenantKey:
    tenant: str
    secret: str
    key_id: str

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}"}


def _provider_away() -> dict[str, str]:
    secret = f"client-secret-of-the-rig-{uuid4().hex}"
    issuer = "http://127.0.0.1:9"
    return {"id": AWAY, "name": "Away", "issuer": issuer, "client_id": "motet", "client_secret": secret}


class Rig:
    """`database` and `redis_url` None: servers of its own, which may be stopped."""

    def __init__(
        self,
        home: Path,
        model: Path,
        shape: Shape,
        database: DatabaseUrls | None = None,
        redis_url: str | None = None,
    ) -> None:
        self.home = Home(home)
        self.shape = shape
        self._model = model
        self._given = database, redis_url
        self.postgres = EmbeddedPostgres(home) if database is None else None
        self.redis = EmbeddedRedis(home) if redis_url is None else None
        self.token = new_admin_token()
        self.settings = {
            "REPLICA_RUNNING": str(shape.running),
            **{name: f"{name}-of-the-rig-{uuid4().hex}" for name in SECRET_SETTINGS},
            "OIDC_PROVIDERS": json.dumps([_provider_away()]),
            **shape.settings,
        }
        self.base_name = f"rig-{uuid4().hex[:8]}"  # a pool of places of its own in a Redis that others use
        self.base_id = BaseSpec.from_dir(model, self.base_name).base_id
        self.plan: Plan | None = None
        self.children: dict[str, Child] = {}

    def start(self) -> None:
        database = self._given[0] or self._start_postgres()
        redis_url = self._given[1] or self._start_redis()
        migrations.upgrade(database.owner)
        ports = tuple(free_port() for _ in range(self.shape.replicas))
        engines = EnginePlan(
            self.home,
            "bfloat16",
            8,
            self._model,
            self.base_name,
            self.shape.settings.get("STORE_URL", f"file://{self.home.store}"),
            "the-replicas-token-of-the-rig",
            ports,
        )
        self.plan = Plan(
            engines,
            free_port(),
            self.shape.workers,
            database,
            redis_url,
            pepper=f"pepper-of-the-rig-{uuid4().hex}",
            data_key=self.settings["DATA_KEY"],
            receipt_key=self.settings["RECEIPT_KEY"],
        )
        for number, port in enumerate(ports):
            self.children[f"replica-{number}"] = Child(self._replica(number, port))
        asyncio.run(self._bootstrap())
        for name in ("control", "gateway"):
            self.launch(name)
        self.wait_until_ready()

    def _start_postgres(self) -> DatabaseUrls:
        assert self.postgres is not None
        return self.postgres.start()

    def _start_redis(self) -> str:
        assert self.redis is not None
        return self.redis.start()

    def _replica(self, number: int, port: int) -> ChildSpec:
        assert self.plan is not None
        shape = self.shape
        options = ["--running", str(shape.running), "--frame-ms", str(shape.frame_ms), "--broken"]
        base = ["--base-id", self.base_id]
        argv = [sys.executable, "-m", "tests.rig.fake_replica", str(port), *options, str(shape.broken), *base]
        name, token = f"fake-replica-{number}", {"MOTET_ENGINE_TOKEN": self.plan.engines.token}
        return ChildSpec(name, argv, self.home.log(name), token, cwd=ROOT)

    async def _bootstrap(self) -> None:
        plan = self._plan
        db = Database(plan.database.system, plan.database.system)
        await ensure_admin(db, Peppers(SecretStr(plan.pepper)), EMAIL, PASSWORD, self.token)
        await db.close()

    @property
    def _plan(self) -> Plan:
        assert self.plan is not None, "not started"
        return self.plan

    def launch(self, name: str) -> None:
        """`gateway` or `control`; also again, after it was killed."""
        spec = self._plan.gateway() if name == "gateway" else self._plan.control()
        named = {f"MOTET_{key}": value for key, value in self.settings.items()}
        self.children[name] = Child(replace(spec, env={**spec.env, **named, **self.shape.environment}))

    def kill(self, name: str) -> None:
        self.children.pop(name).kill()

    def wait_until_ready(self) -> None:
        """Until each worker answers and a completion succeeds."""
        deadline = time.monotonic() + READY_S
        while not self._is_ready():
            gateway = self.children["gateway"]
            assert gateway.returncode is None, f"the gateway ended:\n{self.said()}"
            assert time.monotonic() < deadline, f"not ready:\n{self.said()}"
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            deep = httpx.get(f"{self.base_url}/readyz", params={"deep": "1"}, timeout=10)
        except httpx.HTTPError:
            return False
        return deep.status_code == 200 and len(self.workers()) == self.shape.workers

    def stop(self) -> None:
        for child in self.children.values():
            child.ask_to_stop()
        for child in self.children.values():
            child.stop(STOP_S)
        self.children.clear()
        for server in (self.redis, self.postgres):
            if server is not None:
                server.stop()

    def said(self) -> str:
        logs = sorted((self.home.root / "log").glob("*.log"))
        return "".join(f"\n--- {path.name}\n{tail(path, 15)}" for path in logs)

    # What is there

    @property
    def base_url(self) -> str:
        return self._plan.public_url

    @property
    def redis_url(self) -> str:
        return self._plan.redis_url

    @property
    def database(self) -> DatabaseUrls:
        return self._plan.database

    @property
    def journal_dir(self) -> Path:
        return self.home.journal("gateway")

    @property
    def admin_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def admin(self) -> httpx.Client:
        return httpx.Client(base_url=self.base_url, headers=self.admin_headers, timeout=60)

    def workers(self) -> list[int]:
        """Process ids of the workers, as the parent last wrote them."""
        file = self.home.gateway_run
        return list(json.loads(file.read_text())["worker_pids"]) if file.exists() else []

    def kill_worker(self, number: int) -> None:
        os.kill(self.workers()[number], signal.SIGKILL)

    def tenant(self, *, key: Mapping[str, Any] | None = None, **limits: int) -> TenantKey:
        """A new one, with one key."""
        with self.admin() as admin:
            made = admin.post("/api/v1/tenants", json={"name": f"rig-{uuid4().hex[:12]}", **limits})
            assert made.status_code == 201, made.text
            return self.key_of(admin, made.json()["id"], **(key or {}))

    def key_of(self, admin: httpx.Client, tenant: str, **fields: Any) -> TenantKey:
        wanted = {"name": "rig", "scopes": list(ALL_SCOPES), **fields}
        made = admin.post(f"/api/v1/tenants/{tenant}/keys", json=wanted)
        assert made.status_code == 201, made.text
        return TenantKey(tenant, made.json()["secret"], made.json()["key"]["id"])

    async def sql(self, statement: str, **values: Any) -> list[Any]:
        """As the system role, which sees all tenants."""
        engine = create_async_engine(async_url(self.database.system))
        try:
            async with engine.begin() as connection:
                done = await connection.execute(sa.text(statement), values)
                return list(done.all()) if done.returns_rows else []
        finally:
            await engine.dispose()

    def journal_lines(self, read_to: dict[str, int] | None = None) -> list[dict[str, Any]]:
        """Of all replicas, what tenants caused; with `read_to` only what is new since it was given last."""
        positions = {} if read_to is None else read_to
        found: list[dict[str, Any]] = []
        for url in self._plan.engines.urls:
            while True:
                after = positions.get(url, 0)
                page = self._ask_replica(f"{url}/internal/journal", after=after, limit=5_000)
                if not page["lines"]:
                    break
                found += page["lines"]
                positions[url] = page["next"]
        return [line for line in found if line["purpose"] == "tenant"]

    def figures(self, *, times: bool = False) -> list[dict[str, Any]]:
        """What each replica saw (`fake_replica.py`)."""
        options = {"times": 1} if times else {}
        return [self._ask_replica(f"{url}/fake/figures", **options) for url in self._plan.engines.urls]

    def break_artefact(self, artefact: str, outcome: str | None) -> None:
        """On every replica, from here on (`fake_replica.py`)."""
        headers = {"authorization": f"Bearer {self._plan.engines.token}"}
        for url in self._plan.engines.urls:
            told = {"artefact": artefact, "outcome": outcome}
            assert httpx.post(f"{url}/fake/broken", json=told, headers=headers, timeout=60).status_code == 200

    def _ask_replica(self, url: str, **params: int) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self._plan.engines.token}"}
        answer = httpx.get(url, params=params, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        return content


@contextmanager
def running_rig(
    model: Path, shape: Shape, database: DatabaseUrls | None = None, redis_url: str | None = None
) -> Iterator[Rig]:
    """In a folder of its own, for a block. Not within a running event loop."""
    with tempfile.TemporaryDirectory(prefix="motet-rig-", ignore_cleanup_errors=True) as folder:
        rig = Rig(Path(folder), model, shape, database, redis_url)
        try:
            rig.start()
            yield rig
        finally:
            rig.stop()
