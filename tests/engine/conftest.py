"""What tests of numerics share."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.kernels.build import BuildFailed, built_library

if find_spec("triton") is not None:
    from tests.engine.kernels.interpreter import mend_interpreter

    mend_interpreter()


@pytest.fixture(scope="session")
def kernels_library() -> Path:
    """The C++ kernels. Skips where they can't be built: the twins that serve there promise less."""
    try:
        return built_library()
    except BuildFailed as reason:
        pytest.skip(f"the C++ kernels can't be built here: {reason}")
