"""Every kernel against its twin: the tests of `tests/engine` themselves, run where nothing is interpreted,
and those of this folder at the sizes of Llama 3.1 8B."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.gpu.scale import Scale
from tests.gpu.sections import Found, Section

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 230.0
KERNELS = ROOT / "tests" / "engine" / "kernels"
ATTENTION = KERNELS / "test_paged_attention.py"
FILES = {
    # Three processes share what takes the compiler longest, products in float32.
    "paged attention, heads of 64": (ATTENTION, "any_mix and not (odd or sequences4)"),
    "paged attention, heads of 128": (ATTENTION, "any_mix and (odd or sequences4)"),
    "paged attention": (ATTENTION, "not any_mix"),
    "key and value writes": (KERNELS / "test_kv_write.py", ""),
    "rows": (KERNELS / "test_rowwise_triton.py", ""),
    "SGMV": (KERNELS / "test_sgmv.py", ""),
    "adapter arena": (KERNELS / "test_adapter_arena.py", ""),
    "runner": (ROOT / "tests" / "engine" / "model" / "test_gpu_runner.py", ""),
    "large tiles": (Path(__file__).with_name("check_tiles.py"), ""),
    "large runner": (Path(__file__).with_name("check_runner.py"), ""),
}
"""A file of tests, and which of them (`pytest -k`)."""
DRY = {  # the others are tests of their own
    "rows": "silu",
    "large tiles": "replays or serves or keys or fp8 or qkv",
    "large runner": "(one_by_one and False) or whole",
}
COMPILES_ONLY = "hopper"  # a fixture of tests for which no GPU is needed


class _Told:
    """A plugin: leaves out what only compiles, and keeps what failed."""

    def __init__(self) -> None:
        self.passed = 0
        self.failures: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if COMPILES_ONLY not in getattr(item, "fixturenames", ())]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures.append(f"{report.nodeid} ({report.when})\n{report.longreprtext[-3000:]}")
        elif report.when == "call" and report.passed:
            self.passed += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failures.append(f"{report.nodeid}\n{report.longreprtext[-3000:]}")


def sections(*, is_dry: bool) -> list[Section]:
    names = DRY if is_dry else FILES
    return [Section(f"checks: {name}", check_of(name), LIMIT_S, alone=False) for name in names]


def check_of(name: str) -> Callable[[Scale], Found]:
    return partial(_check, name)


def _check(name: str, scale: Scale) -> Found:
    """Without the project's own settings and conftest files: those need what a bare GPU machine lacks."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    told, (path, which) = _Told(), FILES[name]
    arguments = ["-q", "-c", os.devnull, "--rootdir", str(ROOT), "--noconftest", "--import-mode=importlib"]
    arguments += ["-p", "no:cacheprovider", "-W", "ignore", "--no-header", "--tb=short", str(path)]
    arguments += ["-k", DRY[name] if scale.is_dry else which]
    status = pytest.main(arguments, plugins=[told])
    if status != pytest.ExitCode.OK and not told.failures:
        told.failures.append(f"pytest ended with {status!r}")
    return Found(notes=[f"{name}: {told.passed} checks passed"], failures=told.failures)
