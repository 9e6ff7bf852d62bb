"""The library is built once for a machine, put in place whole, and done without where it can't be built."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from engine.kernels.build import BuildFailed, built_library, compiler_here
from engine.kernels.cpu import CpuKernels, open_kernels
from engine.kernels.reference import ReferenceKernels

COMPILER = """#!/bin/sh
[ "$1" = --version ] && exec {real} --version
while [ "$1" != -o ]; do shift; done
cp {library} "$2"
"""


def test_a_second_start_finds_the_library(
    kernels_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's library took the real compiler 15 s; this one hands out a copy of it."""
    compiler = tmp_path / "c++"
    compiler.write_text(COMPILER.format(real=compiler_here(), library=kernels_library))
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path / "fresh"))
    library = built_library()
    assert library.name == kernels_library.name
    built = library.stat().st_mtime_ns
    assert [path.name for path in library.parent.iterdir()] == [library.name]
    assert built_library() == library
    assert library.stat().st_mtime_ns == built
    assert isinstance(open_kernels(1), CpuKernels)


def test_without_a_compiler_the_twins_serve_and_say_what_it_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert isinstance(open_kernels(1), ReferenceKernels)
    assert "no C++ compiler" in caplog.text
    assert "slow" in caplog.text


def test_a_compiler_that_fails_is_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "broken-cc"
    compiler.write_text("#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho 'no such flag' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(BuildFailed, match="no such flag"):
        built_library()
    assert list((tmp_path / "cache").iterdir()) == []
