"""Where the binaries inside wheels lie."""

from __future__ import annotations

import importlib.util
from pathlib import Path


class ServiceError(RuntimeError):
    """A service can't be started or reached; the message is one line for the person at the terminal."""


def package_folder(package: str) -> Path:
    """The folder of an installed package, without importing it. Raises `ServiceError` where there is none."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ServiceError(f"package {package} is missing: install the extra `local`")
    return Path(next(iter(spec.submodule_search_locations)))
