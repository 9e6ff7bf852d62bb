"""A core to drive by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.core.fakes import Bench


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Builds cores with other limits; each is checked for leaks at the end."""
    benches: list[Bench] = []

    def make(**limits: Any) -> Bench:
        benches.append(Bench(tmp_path / f"journal-{len(benches)}", **limits))
        return benches[-1]

    yield make
    for bench in benches:
        bench.loop.check()
        bench.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
