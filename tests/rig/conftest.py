"""One rig for the short forms: services of its own, two real workers, a fake replica.

Its control process leads until the session ends: in the session's database, no test after it could lead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rig.rig import Rig, Shape, running_rig


@pytest.fixture(scope="session")
def rig(demo_model_dir: Path) -> Iterator[Rig]:
    with running_rig(demo_model_dir, Shape()) as opened:
        yield opened
