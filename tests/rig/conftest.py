"""One rig for the short forms: the session's database and Redis, two real workers, a fake replica."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.services import DatabaseUrls
from tests.rig.rig import Rig, Shape, running_rig


@pytest.fixture(scope="session")
def rig(database: DatabaseUrls, redis_url: str, demo_model_dir: Path) -> Iterator[Rig]:
    with running_rig(demo_model_dir, Shape(), database, redis_url) as opened:
        yield opened
