"""`docs/BENCHMARKS.md`: one section a case, replaced when the case is run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psutil

from deploy.bench import page
from deploy.bench.cases import Case, Row

RESOURCES = "resources"


def ratios(case: Case, rows: Sequence[Row], version: str) -> str:
    """The section of one case."""
    head = ("measured", "median ratio", "interval", "pairs", "medians of both", "aim")
    return page.section(case.name, case.about, page.table(head, list(map(_line, rows))), version, _machine())


def resources(figures: Mapping[str, str], version: str) -> str:
    """The section of what a replica takes."""
    about = "One replica of the demo model: server and core together."
    body = page.table(("of a replica", "value"), list(figures.items()))
    return page.section(RESOURCES, about, body, version, _machine())


def _machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return f"{page.cores()}, {memory:.0f} GiB, no GPU"


def _line(row: Row) -> tuple[str, ...]:
    ratio = row.ratio
    low, high = ratio.interval
    ours, theirs = (sorted(values)[len(values) // 2] for values in (ratio.ours, ratio.theirs))
    return (
        row.what,
        f"{ratio.median:.2f}",
        f"{low:.2f} to {high:.2f}",
        str(len(ratio.ours)),
        f"{ours:.1f} / {theirs:.1f}",
        row.aim,
    )
