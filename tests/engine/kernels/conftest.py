"""What tests of the Triton kernels share (see `tests/engine/kernels/hopper.py`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.kernels.hopper import HopperCompiler


@pytest.fixture(scope="session")
def hopper() -> Iterator[HopperCompiler]:
    with HopperCompiler() as compiler:
        yield compiler
