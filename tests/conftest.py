"""Real parts for every test, each started once a session and only when a test asks for it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import migrations
from deploy.local.models import DEMO_MODEL, import_model
from deploy.local.services import DatabaseUrls, EmbeddedPostgres, EmbeddedRedis
from tests.running_platform import RunningPlatform

ROOT = Path(__file__).resolve().parents[1]
os.environ.setdefault("TRITON_INTERPRET", "1")  # triton reads it when first imported, by peft for one


@pytest.hookimpl(optionalhook=True)  # where xdist is not installed, one process runs them all
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.groups import ByFixture

    return ByFixture(config, log)


@pytest.fixture(scope="session")
def service_home() -> Iterator[Path]:
    """A home for the session's services. Not under pytest's tmp_path: that is kept for three sessions."""
    with tempfile.TemporaryDirectory(prefix="motet-tests-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def postgres(service_home: Path) -> Iterator[DatabaseUrls]:
    """A server with the three roles and an empty database: URLs `.owner`, `.app`, `.system`."""
    server = EmbeddedPostgres(service_home)
    yield server.start()
    server.stop()


@pytest.fixture(scope="session")
def database(postgres: DatabaseUrls) -> DatabaseUrls:
    """The same server at the newest revision."""
    migrations.upgrade(postgres.owner)
    return postgres


@pytest.fixture(scope="session")
def redis_url(service_home: Path) -> Iterator[str]:
    server = EmbeddedRedis(service_home)
    yield server.start()
    server.stop()


@pytest.fixture(scope="session")
def demo_model_dir() -> Path:
    """The demo model's folder, imported once a checkout into var/cache (or $MOTET_TEST_MODEL)."""
    given = os.environ.get("MOTET_TEST_MODEL")
    return Path(given) if given else import_model(ROOT / "var" / "cache" / DEMO_MODEL)


@pytest.fixture(scope="session")
def running_platform(demo_model_dir: Path) -> Iterator[RunningPlatform]:
    """`motet up` on a home and port of its own, with two gateway workers and one replica. At the end of the
    session nothing that its tests left behind may hold a secret."""
    from tests.rig.leftovers import secrets_left_behind

    with tempfile.TemporaryDirectory(prefix="motet-platform-", ignore_cleanup_errors=True) as folder:
        platform = RunningPlatform(Path(folder), demo_model_dir)
        platform.start()
        yield platform
        found = secrets_left_behind(platform)
        platform.stop()
        assert found == []


@pytest.fixture(scope="session")
def platform(running_platform: RunningPlatform) -> dict[str, Any]:
    """What `demo.json` of the running platform says."""
    return running_platform.demo()
