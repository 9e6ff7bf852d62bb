"""Who may import whom, and what must not be loaded where: docs/ARCHITECTURE.md, the table of packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"torch", "transformers"}


def test_the_import_contracts_hold() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([str(lint), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module",
    ["gateway.app", "gateway.worker", "gateway.cli", "gateway.control", "engine.core.loop", "deploy.cli"],
)
def test_it_loads_no_torch(module: str) -> None:
    assert loaded_by(f"import {module}").isdisjoint(HEAVY)


def test_the_command_itself_loads_no_server() -> None:
    assert loaded_by("import deploy.cli").isdisjoint(HEAVY | {"litestar", "sqlalchemy", "aiohttp"})


def test_the_gateway_costs_little_beyond_the_libraries_it_is_built_on() -> None:
    """In processor time of the same machine: one machine took from 0.8 to 1.1 s for the libraries alone."""
    built_on = "litestar, sqlalchemy.ext.asyncio, sqlalchemy.orm, asyncpg, aiohttp, redis.asyncio, uvicorn"
    gateway, libraries = [], []
    for _ in range(3):
        gateway.append(imported_s("gateway.app"))
        libraries.append(imported_s(f"{built_on}, structlog, pydantic_settings"))
    assert min(gateway) < 3 * min(libraries)


def imported_s(modules: str) -> float:
    return float(run(f"import time, {modules}; print(time.process_time())"))


def loaded_by(statement: str) -> set[str]:
    return set(
        run(f"{statement}; import sys; print(*{{name.split('.')[0] for name in sys.modules}})").split()
    )


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout
