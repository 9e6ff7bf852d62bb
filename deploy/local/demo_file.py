"""`demo.json` of a home: all that a person or a test needs to talk to the running platform. Mode 0600."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.local.admin_login import AdminLogin
from deploy.local.demo_tenants import DemoTenant
from deploy.local.layout import Home
from deploy.local.processes import Plan
from deploy.local.secret_file import write_private_json
from deploy.local.supervisor import Supervisor

REFRESH_S = 2.0


@dataclass
class DemoFile:
    """Writes the file, and again when a process was replaced: it names process ids."""

    plan: Plan
    supervisor: Supervisor
    admin: AdminLogin
    tenants: list[DemoTenant]
    _written: dict[str, Any] = field(default_factory=dict)
    _checked_at: float = 0.0

    def refresh(self) -> None:
        now = time.monotonic()
        if now - self._checked_at >= REFRESH_S:
            self._checked_at = now
            try:
                self.write()
            except OSError as error:  # a full disk must not end what runs
                self.supervisor.say(f"{self.plan.home.demo} can't be written ({error.strerror})")

    def write(self) -> None:
        content = self.content()
        if content != self._written:
            write_private_json(self.plan.home.demo, content)
            self._written = content

    def content(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "base_url": f"{plan.public_url}/v1",
            "admin_url": f"{plan.public_url}/admin",
            "base_model": plan.base_name,
            "admin": {"email": self.admin.email, "password": self.admin.password, "token": self.admin.token},
            "engines": [
                {"url": url, "token": plan.engines.token, "pid": _pid(self.supervisor, f"engine-{replica}")}
                for replica, url in enumerate(plan.engines.urls)
            ],
            "gateway": self._gateway(),
            "control": {
                "url": f"http://127.0.0.1:{plan.control_port}",
                "pid": _pid(self.supervisor, "control"),
            },
            "database_url": plan.database.system,
            "redis_url": plan.redis_url,
            "tenants": [tenant.as_json() for tenant in self.tenants],
        }

    def _gateway(self) -> dict[str, Any]:
        """The gateway itself keeps the list of its workers in a file."""
        pid = _pid(self.supervisor, "gateway")
        said = _read_json(self.plan.home.gateway_run)
        return {"pid": pid, "worker_pids": said.get("worker_pids", []) if pid == said.get("pid") else []}


def read_demo_file(home: Home) -> dict[str, Any]:
    """What an earlier start wrote; empty if there was none or it was lost."""
    return _read_json(home.demo)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text())
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _pid(supervisor: Supervisor, name: str) -> int | None:
    """None while it is being restarted."""
    return next((child.pid for child in supervisor.children(name)), None)
