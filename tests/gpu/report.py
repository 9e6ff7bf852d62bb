"""What was found, as a section of `docs/BENCHMARKS.md`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch

from deploy.bench import page
from tests.gpu.sections import Outcome, Table

NAME = "gpu-check"
ABOUT = (
    "The shape of Llama 3.1 8B with random FP8 weights; each kernel against its twin (`make gpu-check`). "
    "A floor is what must be read and written, at the speed of a copy in the same run."
)


def section(outcomes: Sequence[Outcome], machine: str, root: Path) -> str:
    return page.section(NAME, ABOUT, _body(outcomes), page.commit(root), machine)


def write(target: Path, told: str, *, on_gpu: bool) -> None:
    """With `on_gpu` the page no longer says that nothing of it ran on one."""
    page.write_section(target, NAME, told)
    if on_gpu:
        target.write_text(target.read_text().replace(page.NOT_ON_A_GPU, ""))


def machine() -> str:
    """The processes that measure have ended: this one may ask the driver now."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        told = ""
    return f"{told or 'an unknown GPU'}, torch {torch.__version__}, {page.cores()}"


def _body(outcomes: Sequence[Outcome]) -> str:
    parts = []
    for outcome in outcomes:
        found = outcome.found
        parts += found.notes
        parts += [_table(table) for table in found.tables]
        parts += [f"**{outcome.section.name} failed:**\n\n```\n{text}\n```" for text in found.failures]
    times = ", ".join(f"{outcome.section.name} {outcome.took_s:.0f} s" for outcome in outcomes)
    return "\n\n".join([*parts, f"Time taken: {times}."])


def _table(table: Table) -> str:
    return f"**{table.title}**\n\n{page.table(table.head, table.rows)}"
