"""`python -m deploy.bench gateway`: Motet's gateway beside the bare relay and LiteLLM, in one run."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from deploy.bench import page
from deploy.bench.gateway import measures
from deploy.bench.gateway.measures import Bench, Figure, Measure
from deploy.bench.gateway.targets import Target, fake_replica, first_core, litellm, motet, relay
from deploy.local.models import DEMO_MODEL, import_model

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "BENCHMARKS.md"
ABOUT = (
    "The gateway with everything switched on (limits of tenant and key, response cache, ledger, fsync), one "
    "worker tied to a core; load, fake replica, PostgreSQL and Redis on the others. Each prompt is its own. "
    "Medians of the rounds, with the targets in turns; the relay does nothing but pass bytes."
)


@dataclass(frozen=True)
class Aim:
    """What a figure should be."""

    what: str
    aim: str


ROWS = {
    "unary_rps": Aim("unary requests a second", "at least 1,350 and 8 x LiteLLM"),
    "unary_cpu": Aim("CPU seconds per 1,000 unary", ""),
    "added_p50": Aim("added ms at one client, median", "at most 1.5"),
    "added_p99": Aim("added ms at one client, p99", "at most 5"),
    "zero_delay_cpu": Aim("CPU seconds per 100,000 frames, zero delay", "at most 2.5"),
    "paced_cpu": Aim("CPU seconds per 100,000 frames, 5 ms apart", "at most 6.5 and LiteLLM / 16"),
    "idle_mib": Aim("MiB with 2,000 idle streams", "under 400"),
}
CASES: dict[str, Measure] = {
    "unary": measures.unary,
    "lone": measures.lone,
    "zero-delay": measures.zero_delay,
    "paced": measures.paced,
    "idle": measures.idle_streams,
}


def main(
    rounds: Annotated[int, typer.Option(min=1, max=99, help="Rounds; figures are their medians.")] = 3,
    only: Annotated[list[str] | None, typer.Option(help=f"Of {', '.join(CASES)}; may be repeated.")] = None,
    litellm_program: Annotated[
        Path | None, typer.Option("--litellm", help="The program of an installed LiteLLM proxy.")
    ] = None,
    home: Annotated[Path, typer.Option(help="State of what is measured; emptied.")] = Path(
        "var/bench-gateway"
    ),
    model: Annotated[Path | None, typer.Option(help="Model folder; absent, the demo model.")] = None,
    write: Annotated[bool, typer.Option(help="Write docs/BENCHMARKS.md.")] = True,
) -> None:
    """Measure what the gateway costs, beside a bare relay and LiteLLM."""
    folder = model or import_model((Path("var/bench") / DEMO_MODEL).resolve())
    cases = {name: case for name, case in CASES.items() if not only or name in only}
    core = first_core()
    others = os.sched_getaffinity(0) - {core}
    if not others:
        raise typer.BadParameter("the gateway needs a core and the load another: this machine has one")
    os.sched_setaffinity(0, others)
    with ExitStack() as stack:
        home = home.resolve()
        home.mkdir(parents=True, exist_ok=True)
        upstream = stack.enter_context(fake_replica(home))
        targets = [
            stack.enter_context(motet(folder, upstream, home / "motet", core)),
            stack.enter_context(relay(upstream, home, core)),
        ]
        if litellm_program is not None:
            targets.append(stack.enter_context(litellm(litellm_program, upstream, home, core)))
        figures = uvloop.run(_measure(Bench(upstream), targets, cases, rounds))
    section = page.section("gateway", ABOUT, _table(targets, figures), page.commit(ROOT), page.cores())
    Console(width=160).print(section, markup=False, highlight=False, soft_wrap=True)
    if write:
        page.write_section(PAGE, "gateway", section)


Figures = dict[tuple[str, str], list[Figure]]


async def _measure(
    bench: Bench, targets: Sequence[Target], cases: dict[str, Measure], rounds: int
) -> Figures:
    figures: Figures = {}
    for number in range(rounds):
        for case in cases.values():
            for target in targets if number % 2 == 0 else reversed(targets):
                for name, figure in (await case(bench, target)).items():
                    figures.setdefault((name, target.name), []).append(figure)
    return figures


def _table(targets: Sequence[Target], figures: Figures) -> str:
    names = [target.name for target in targets]
    lines = []
    for row, aim in ROWS.items():
        if (row, names[0]) in figures:
            lines.append([aim.what, *(_cell(figures[row, name]) for name in names), aim.aim])
    return page.table(["measured", *names, "aim for Motet"], lines)


def _cell(found: Sequence[Figure]) -> str:
    values = sorted(figure.value for figure in found)
    notes = {figure.note for figure in found if figure.note}
    text = f"{statistics.median(values):.4g} ({values[0]:.4g} to {values[-1]:.4g})"
    return "; ".join([text, *sorted(notes)])
