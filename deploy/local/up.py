"""`motet up`: the whole platform on one machine, from nothing to a ready API, and back to nothing."""

from __future__ import annotations

import asyncio
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import migrations
from deploy.local.admin_login import AdminLogin, load_or_make_login, register
from deploy.local.children import Child
from deploy.local.console import Progress
from deploy.local.demo_file import DemoFile, read_demo_file
from deploy.local.demo_tenants import DemoError, DemoTenant, admin_token_opens, ensure_demo_tenants
from deploy.local.layout import Home
from deploy.local.models import DEMO_MODEL, ModelImportError, import_model
from deploy.local.preflight import (
    PreflightError,
    check_home,
    check_port,
    check_python,
    only_one,
    wait_for_remains,
)
from deploy.local.processes import EnginePlan, Plan
from deploy.local.roles import DatabaseUrls, prepare_database
from deploy.local.secret_file import load_or_make_secrets
from deploy.local.services import EmbeddedPostgres, EmbeddedRedis, free_port
from deploy.local.supervisor import Service, StartFailed, StopRequested, Supervisor, raise_on_signals
from deploy.local.welcome import welcome
from deploy.local.wheels import ServiceError

READY_TIMEOUT_S = 300.0  # the first start compiles the CPU kernels
PROBE_TIMEOUT_S = 10.0
SECRETS = (
    "postgres",
    "motet_owner",
    "motet_app",
    "motet_system",
    "redis",
    "pepper",
    "data_key",
    "receipt_key",
    "engine_token",
)
FORMERLY = {"data_key": "pepper", "receipt_key": "pepper"}
CLEAR_FAILURES = (PreflightError, ServiceError, ModelImportError, StartFailed, DemoError)


@dataclass(frozen=True)
class UpOptions:
    port: int
    home: Path
    workers: int
    replicas: int
    dtype: str
    slots: int
    demo: bool


def run_up(options: UpOptions) -> int:
    """Run until a signal; the exit code: 0 after an orderly stop, 1 when the platform could not start."""
    progress = Progress()
    home = Home(options.home.resolve())
    raise_on_signals()
    try:
        check_python()
        check_home(home)
        with only_one(home):
            wait_for_remains(home)
            check_port(options.port)
            _Up(options, home, progress).run()
    except StopRequested:
        return 0
    except CLEAR_FAILURES as error:
        progress.fail(str(error))
        return 1
    raise AssertionError("it runs until something is raised")


class _Up:
    """One run of `motet up`."""

    def __init__(self, options: UpOptions, home: Home, progress: Progress) -> None:
        self._options = options
        self._home = home
        self._progress = progress
        self._secrets = load_or_make_secrets(home.secrets, SECRETS, FORMERLY)
        self._supervisor = Supervisor(progress.say)

    def run(self) -> None:
        began = time.monotonic()
        try:
            engines = self._start_engines()
            plan = self._start_services(engines)
            self._start_gateway(plan)
            admin = self._admin(plan)
            tenants = self._demo_tenants(plan, admin)
            demo_file = DemoFile(plan, self._supervisor, admin, tenants)
            demo_file.write()
            self._progress.say(welcome(plan, admin, tenants, time.monotonic() - began))
            self._supervisor.watch(demo_file.refresh)
        finally:
            with self._progress.step("Stopping"):
                self._supervisor.stop()

    def _start_engines(self) -> EnginePlan:
        """First, because loading the model takes longest; the rest starts meanwhile."""
        with self._progress.step("Base model"):
            model, name = self._model()
        plan = EnginePlan(
            home=self._home,
            dtype=self._options.dtype,
            slots=self._options.slots,
            model=model,
            base_name=name,
            store_url=os.environ.get("MOTET_STORE_URL", f"file://{self._home.store}"),
            token=self._secrets["engine_token"],
            ports=tuple(free_port() for _ in range(self._options.replicas)),
        )
        for replica in range(self._options.replicas):
            start = partial(Child, plan.engine(replica))
            self._supervisor.start(Service(f"engine-{replica}", start, stage=1))
        return plan

    def _start_services(self, engines: EnginePlan) -> Plan:
        with self._progress.step("PostgreSQL"):
            database = self._start_postgres()
            migrations.upgrade(database.owner)
        with self._progress.step("Redis"):
            redis_url = self._start_redis()
        return Plan(
            engines=engines,
            port=self._options.port,
            workers=self._options.workers,
            database=database,
            redis_url=redis_url,
            pepper=self._secrets["pepper"],
            data_key=self._secrets["data_key"],
            receipt_key=self._secrets["receipt_key"],
        )

    def _start_postgres(self) -> DatabaseUrls:
        """The embedded server, or the given one: MOTET_DATABASE_URL may make roles and databases, or else all
        three URLs are given."""
        given = os.environ.get("MOTET_DATABASE_URL")
        owner, system = (
            os.environ.get("MOTET_DATABASE_OWNER_URL"),
            os.environ.get("MOTET_DATABASE_SYSTEM_URL"),
        )
        if given and owner and system:
            return DatabaseUrls(owner=owner, app=given, system=system)
        if given:
            return prepare_database(given, self._secrets)
        server = EmbeddedPostgres(self._home.root)
        urls = server.start()
        self._supervisor.adopt(Service("postgres", server.restart, stage=2, child=server.child))
        return urls

    def _start_redis(self) -> str:
        given = os.environ.get("MOTET_REDIS_URL")
        if given:
            return given
        server = EmbeddedRedis(self._home.root)
        url = server.start()
        self._supervisor.adopt(Service("redis", server.restart, stage=2, child=server.child))
        return url

    def _model(self) -> tuple[Path, str]:
        given = os.environ.get("MOTET_BASE_MODEL")
        if given:
            folder = Path(given).resolve()
            return folder, os.environ.get("MOTET_BASE_NAME", folder.name)
        return import_model(self._home.model, say=self._progress.say), DEMO_MODEL

    def _start_gateway(self, plan: Plan) -> None:
        with self._progress.step("Gateway and engine"):
            self._supervisor.start(Service("control", partial(Child, plan.control()), stage=0))
            self._supervisor.start(Service("gateway", partial(Child, plan.gateway()), stage=0))
            ready = partial(_answers, f"{plan.public_url}/readyz?deep=1")
            self._supervisor.wait_until(ready, "the gateway", READY_TIMEOUT_S)

    def _admin(self, plan: Plan) -> AdminLogin:
        login = load_or_make_login(self._home)
        if not asyncio.run(admin_token_opens(plan, login.token)):
            with self._progress.step("Admin"):
                register(login, plan)
        return login

    def _demo_tenants(self, plan: Plan, admin: AdminLogin) -> list[DemoTenant]:
        if not self._options.demo:
            return []
        if plan.base_name != DEMO_MODEL:
            self._progress.say(
                f"No demo tenants: their adapters are made for {DEMO_MODEL}, not {plan.base_name}"
            )
            return []
        with self._progress.step("Demo tenants"):
            return asyncio.run(ensure_demo_tenants(plan, admin.token, read_demo_file(self._home)))


def _answers(url: str) -> bool:
    """Whether a GET ends with 200. Anything else, refused connections too, means: not yet."""
    try:
        with urllib.request.urlopen(url, timeout=PROBE_TIMEOUT_S) as response:  # noqa: S310 - our own http URL
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False
