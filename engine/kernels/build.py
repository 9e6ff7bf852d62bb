"""Builds the C++ kernels at first use and keeps the library by source, compiler, flags and CPU."""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("cpu.cpp")
SOURCES = (SOURCE, *sorted(SOURCE.parent.glob("*.h")))
FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-fopenmp", "-Wno-psabi")
BUILD_TIMEOUT_S = 300

_log = logging.getLogger(__name__)


class BuildFailed(Exception):
    """The kernels can't be built here; the message says why."""


def cache_directory() -> Path:
    """`MOTET_CACHE_DIR`, or the user's cache directory."""
    if named := os.environ.get("MOTET_CACHE_DIR"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "motet"


def built_library() -> Path:
    """The shared library for this machine, built if it isn't there. Raises `BuildFailed`."""
    compiler = compiler_here()
    target = cache_directory() / f"kernels-{_fingerprint(compiler)}.so"
    if not target.exists():
        _log.info("building the CPU kernels, once: %s", target)
        _build(compiler, target)
    return target


def compiler_here() -> str:
    """The C++ compiler of this machine, as a name or path. Raises `BuildFailed`."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if compiler is None:
        raise BuildFailed("no C++ compiler was found (g++, c++, clang++ or $CXX)")
    return compiler


def _fingerprint(compiler: str) -> str:
    digest = hashlib.sha256()
    for part in (
        *(source.read_bytes() for source in SOURCES),
        _version(compiler),
        " ".join(FLAGS).encode(),
        _cpu(),
        torch.__version__.encode(),
    ):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:20]


def _version(compiler: str) -> bytes:
    return _run([compiler, "--version"])


def _cpu() -> bytes:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}".encode()
    told = {
        line
        for line in lines
        if line.split(":")[0].strip() in {"model name", "flags", "Features", "CPU part"}
    }
    return "\n".join(sorted(told)).encode()


def _build(compiler: str, target: Path) -> None:
    """Compiles beside the target and renames, so that two processes that build at once do no harm."""
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            compiled, linked = Path(scratch) / "kernels.o", Path(scratch) / "kernels.so"
            _run([compiler, *FLAGS, "-c", str(SOURCE), "-o", str(compiled)])
            _run([compiler, "-shared", str(compiled), *_openmp(), "-o", str(linked)])
            linked.replace(target)
    except OSError as error:
        raise BuildFailed(f"the cache directory {target.parent} can't be written: {error}") from error


def _openmp() -> list[str]:
    """torch's own OpenMP runtime, so that one pool of threads serves both."""
    shipped = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    return [str(shipped[0])] if shipped else ["-fopenmp"]


def _run(command: list[str]) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 - the compiler, with our own arguments
            command, capture_output=True, timeout=BUILD_TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        raise BuildFailed(f"{command[0]} failed: {error.stderr.decode(errors='replace')[-800:]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"{command[0]} could not run: {error}") from error
    return done.stdout
