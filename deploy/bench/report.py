"""`docs/BENCHMARKS.md`: one section a case, replaced when the case is run again."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import psutil

from deploy.bench.cases import Case, Row

HEAD = """# Benchmarks

Ratios of measurements that alternate in one run on one machine (`make bench`); absolute figures stand beside
them for scale only. An interval is that of the median: of nine pairs, 96 %. Each section says when, at which
commit and where it was measured, and is written by the run. **Nothing here has yet run on a GPU.**
"""


RESOURCES = "resources"


def ratios(case: Case, rows: Sequence[Row], version: str) -> str:
    """The section of one case."""
    head = "| measured | median ratio | interval | pairs | medians of both | aim |\n|---|---|---|---|---|---|"
    return _section(case.name, case.about, "\n".join([head, *(_line(row) for row in rows)]), version)


def resources(figures: Mapping[str, str], version: str) -> str:
    """The section of what a replica takes."""
    rows = [f"| {name} | {value} |" for name, value in figures.items()]
    about = "One replica of the demo model: server and core together."
    return _section(RESOURCES, about, "\n".join(["| of a replica | value |", "|---|---|", *rows]), version)


def write_section(page: Path, name: str, section: str) -> None:
    """Puts a section into the page, in place of the one of that name."""
    text = page.read_text() if page.exists() else HEAD
    pattern = re.compile(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    text, found = pattern.subn(lambda _: section, text)
    if not found:
        text = f"{text.rstrip()}\n\n{section}"
    page.write_text(text.rstrip() + "\n")


def commit(root: Path) -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"],  # noqa: S607 - the git of whoever runs this
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def _section(name: str, about: str, table: str, version: str) -> str:
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {version}, {_machine()}."
    return f"## {name}\n\n{about} {when}\n\n{table}\n\n"


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores of {_processor()}, {memory:.0f} GiB, no GPU"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _line(row: Row) -> str:
    ratio = row.ratio
    low, high = ratio.interval
    ours, theirs = (sorted(values)[len(values) // 2] for values in (ratio.ours, ratio.theirs))
    return (
        f"| {row.what} | {ratio.median:.2f} | {low:.2f} to {high:.2f} | {len(ratio.ours)} "
        f"| {ours:.1f} / {theirs:.1f} | {row.aim} |"
    )
