"""The command behind `make bench`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from deploy.bench import platform, report
from deploy.bench.cases import CASES, MIXED, STREAMS, Case, Setting
from deploy.bench.gateway import command as gateway
from deploy.bench.load import run
from deploy.bench.page import commit, write_section
from deploy.bench.peers import open_peer, peft_peer
from deploy.bench.prompts import asks
from deploy.bench.replica import Replica, running_replica, write_adapters
from deploy.local.models import DEMO_MODEL, import_model

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "BENCHMARKS.md"

app = typer.Typer(add_completion=False, no_args_is_help=False)
app.command("platform")(platform.main)
app.command("gateway")(gateway.main)

Home = Annotated[Path, typer.Option(help="Where the model, the adapters and the replica's files are kept.")]
Model = Annotated[Path | None, typer.Option(help="Model folder; absent, the demo model.")]


@dataclass(frozen=True)
class Page:
    """Where sections go."""

    console: Console
    version: str
    write: bool

    def publish(self, name: str, section: str) -> None:
        self.console.print(section, markup=False, highlight=False, soft_wrap=True)
        if self.write:
            write_section(PAGE, name, section)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    only: Annotated[list[str] | None, typer.Option(help="A case by name; may be repeated.")] = None,
    pairs: Annotated[int, typer.Option(min=1, max=99, help="Alternating pairs of each comparison.")] = 9,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="NAME=URL of a running server, its URL ending in /v1: vllm, vllm-lora, llama."),
    ] = None,
    peft: Annotated[bool, typer.Option(help="Measure PEFT's mixed batch too.")] = False,
    home: Home = Path("var/bench"),
    model: Model = None,
    write: Annotated[bool, typer.Option(help="Write docs/BENCHMARKS.md.")] = True,
) -> None:
    """Measure a replica against itself under other loads, and against the peers that are named."""
    if context.invoked_subcommand is not None:
        return
    cases = [case for case in CASES if not only or case.name in only]
    wanted = dict(entry.split("=", 1) for entry in peer or [])
    folder = model or import_model((home / DEMO_MODEL).resolve())
    adapters = write_adapters(folder, home / "adapters")
    console = Console(width=160)
    version = commit(ROOT)

    async def measure() -> None:
        peers = {name: await open_peer(name, url) for name, url in wanted.items()}
        async with contextlib.AsyncExitStack() as stack:
            batch = None
            if peft:
                rows = [adapters[name] for name in MIXED[:STREAMS]]
                batch = await stack.enter_async_context(peft_peer(folder, rows))
            for slots in sorted({case.slots for case in cases}):
                with running_replica(folder, adapters, home / "replica", slots=slots) as replica:
                    idle = replica.memory_bytes()
                    await _warm(replica)
                    setting = Setting(replica, peers, batch, pairs)
                    page = Page(console, version, write)
                    await _measure([case for case in cases if case.slots == slots], setting, page)
                    if not only and slots == max(case.slots for case in cases):
                        page.publish(report.RESOURCES, report.resources(_figures(replica, idle), version))

    asyncio.run(measure())


@app.command()
def adapters(folder: Path, home: Home = Path("var/bench"), model: Model = None) -> None:
    """Write the adapters of the cases as PEFT folders, for peers that are started by hand."""
    source = model or import_model((home / DEMO_MODEL).resolve())
    for path in write_adapters(source, folder).values():
        typer.echo(str(path))


async def _warm(replica: Replica) -> None:
    """Every adapter once, so that none is loaded while something is measured."""
    endpoint = replica.endpoint
    models = [endpoint.base_model, *endpoint.by_model]
    await run(endpoint, asks(models, len(models), "warm", max_tokens=2), 8)


async def _measure(cases: Sequence[Case], setting: Setting, page: Page) -> None:
    for case in cases:
        if rows := await case.measure(setting):
            page.publish(case.name, report.ratios(case, rows, page.version))


def _figures(replica: Replica, idle_bytes: int) -> dict[str, str]:
    return {
        "from start to ready": f"{replica.ready_s:.1f} s",
        "resident memory, idle": f"{idle_bytes / 2**20:.0f} MiB",
        "resident memory after the cases": f"{replica.memory_bytes() / 2**20:.0f} MiB",
    }


if __name__ == "__main__":
    app()
