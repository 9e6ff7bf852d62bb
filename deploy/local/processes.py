"""The platform's own processes: what each is started with. All that they need is in their environment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from deploy.local.children import ChildSpec
from deploy.local.layout import Home
from deploy.local.roles import DatabaseUrls
from deploy.local.services import free_port

DRAIN_S = 2  # for running requests, of the time in which everything has to end


@dataclass(frozen=True)
class EnginePlan:
    """The replicas: settings that all of them share. They need no database, so they start first."""

    home: Home
    dtype: str
    slots: int
    model: Path
    base_name: str
    store_url: str
    token: str
    ports: tuple[int, ...]

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(f"http://127.0.0.1:{port}" for port in self.ports)

    @property
    def shared_env(self) -> dict[str, str]:
        """What the gateway must know in the same words."""
        return {
            "PYTHONUNBUFFERED": "1",
            "MOTET_HOME": str(self.home.root),
            "MOTET_STORE_URL": self.store_url,
            "MOTET_BASE_MODEL": str(self.model),
            "MOTET_BASE_NAME": self.base_name,
            "MOTET_ENGINE_TOKEN": self.token,
        }

    def engine(self, replica: int) -> ChildSpec:
        name = f"engine-{replica}"
        env = self.shared_env | {
            "MOTET_ENGINE_HOST": "127.0.0.1",
            "MOTET_ENGINE_PORT": str(self.ports[replica]),
            "MOTET_ENGINE_DTYPE": self.dtype,
            "MOTET_ENGINE_SLOTS": str(self.slots),
            "MOTET_ENGINE_DRAIN_S": str(DRAIN_S),
            "MOTET_ENGINE_PROOF_LONGEST": os.environ.get(
                "MOTET_ENGINE_PROOF_LONGEST", "asked"
            ),  # minutes here
            "MOTET_JOURNAL_DIR": str(self.home.journal(name)),
            "MOTET_ENGINE_CACHE_DIR": str(self.home.adapter_cache(replica)),
            "MOTET_CACHE_DIR": os.environ.get("MOTET_CACHE_DIR", str(self.home.cache)),  # built kernels
        }
        return _motet(self.home, name, ["engine"], env)


@dataclass(frozen=True)
class Plan:
    """One machine's platform."""

    engines: EnginePlan
    port: int
    workers: int
    database: DatabaseUrls
    redis_url: str
    pepper: str
    data_key: str
    receipt_key: str
    control_port: int = field(default_factory=free_port)

    @property
    def home(self) -> Home:
        return self.engines.home

    @property
    def base_name(self) -> str:
        return self.engines.base_name

    @property
    def public_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def gateway(self) -> ChildSpec:
        arguments = ["gateway", "--port", str(self.port), "--workers", str(self.workers)]
        return _motet(self.home, "gateway", arguments, self._gateway_env)

    def control(self) -> ChildSpec:
        env = {"MOTET_CONTROL_HOST": "127.0.0.1", "MOTET_CONTROL_PORT": str(self.control_port)}
        return _motet(self.home, "control", ["control"], self._gateway_env | env)

    def bootstrap_env(self, email: str, password: str, token: str) -> dict[str, str]:
        """For the program that registers the first operator."""
        login = {
            "MOTET_ADMIN_EMAIL": email,
            "MOTET_ADMIN_PASSWORD": password,
            "MOTET_ADMIN_TOKEN": token,
            "MOTET_ADMIN_MUST_CHANGE_PASSWORD": "false",  # drawn by chance, and in a file of mode 0600
        }
        return {**os.environ, **self._gateway_env, **login}

    @property
    def _gateway_env(self) -> dict[str, str]:
        return self.engines.shared_env | {
            "MOTET_DATABASE_URL": self.database.app,
            "MOTET_DATABASE_SYSTEM_URL": self.database.system,
            "MOTET_DATABASE_OWNER_URL": self.database.owner,
            "MOTET_REDIS_URL": self.redis_url,
            "MOTET_JOURNAL_DIR": str(self.home.journal("gateway")),
            "MOTET_PEPPER": self.pepper,
            "MOTET_DATA_KEY": self.data_key,
            "MOTET_RECEIPT_KEY": self.receipt_key,
            "MOTET_REPLICAS": ",".join(self.engines.urls),
            "MOTET_BASE_DIGESTS": "any",  # they are all started here, with the same settings
            "MOTET_PUBLIC_URL": self.public_url,
            "MOTET_WORKERS": str(self.workers),
            "MOTET_DRAIN_S": str(DRAIN_S),
        }


def _motet(home: Home, name: str, arguments: list[str], env: dict[str, str]) -> ChildSpec:
    argv = [sys.executable, "-m", "deploy.cli", *arguments]
    return ChildSpec(name=name, argv=argv, log=home.log(name), env=env)
