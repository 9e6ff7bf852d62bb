"""`docs/BENCHMARKS.md` as text: sections that are replaced when what they tell is measured again. Needs
nothing but the standard library, so that what runs on a bare machine can write it too."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

NOT_ON_A_GPU = " **Nothing here has yet run on a GPU.**"
HEAD = f"""# Benchmarks

Ratios of measurements that alternate in one run on one machine (`make bench`); absolute figures stand beside
them for scale only. An interval is that of the median: of nine pairs, 96 %. Each section says when, at which
commit and where it was measured, and is written by the run.{NOT_ON_A_GPU}
"""


def write_section(page: Path, name: str, section: str) -> None:
    """Puts a section into the page, in place of the one of that name."""
    text = page.read_text() if page.exists() else HEAD
    pattern = re.compile(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    text, found = pattern.subn(lambda _: section, text)
    if not found:
        text = f"{text.rstrip()}\n\n{section}"
    page.write_text(text.rstrip() + "\n")


def section(name: str, about: str, body: str, version: str, machine: str) -> str:
    """`about` is a sentence or two, `version` what `commit` gives."""
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {version}, {machine}."
    return f"## {name}\n\n{about} {when}\n\n{body}\n\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def commit(root: Path) -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10"],  # noqa: S607 - of whoever runs this
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:  # a bare machine has none
        return "unknown"
    return done.stdout.strip() or "unknown"


def cores() -> str:
    return f"{os.cpu_count()} cores of {_processor()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
