"""`make bench ARGS=platform`: an open-loop load over every demo adapter and the base; what clients feel."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from deploy.bench.load import Answer, Ask, Endpoint, percentile, run_open
from deploy.bench.prompts import words

PROMPT_WORDS = 20


def main(
    home: Annotated[Path, typer.Option(help="Home of the running platform.")] = Path("var"),
    requests: Annotated[int, typer.Option(min=1, max=100_000)] = 64,
    rate: Annotated[float, typer.Option(min=0.01, help="Requests a second.")] = 2.0,
    max_tokens: Annotated[int, typer.Option(min=1, max=4_096)] = 64,
    seed: int = 1,
) -> None:
    """Measure a platform that `motet up` runs."""
    callers = _callers(json.loads((home / "demo.json").read_text()))
    calls = [
        (endpoint, Ask(model, words((seed, number), PROMPT_WORDS), max_tokens))
        for number in range(requests)
        for endpoint, model in [callers[number % len(callers)]]
    ]
    began = time.perf_counter()
    answers = asyncio.run(run_open(calls, rate, seed))
    console = Console()
    _print(console, f"{requests} requests at {rate}/s over {len(callers)} models", answers)
    seconds = time.perf_counter() - began
    tokens = sum(answer.completion_tokens for answer in answers)
    console.print(f"{tokens} tokens in {seconds:.1f} s: {tokens / seconds:.1f} a second")
    errors = [answer.error for answer in answers if answer.error]
    console.print(f"{len(errors)} errors" + (f", the first: {errors[0]}" if errors else ""), markup=False)
    if errors:
        raise typer.Exit(1)


def _callers(demo: dict[str, Any]) -> list[tuple[Endpoint, str]]:
    """Each tenant with each model that it may ask for."""
    found = []
    for tenant in demo["tenants"]:
        key = {"authorization": f"Bearer {tenant['api_key']}"}
        endpoint = Endpoint("platform", demo["base_url"], demo["base_model"], key)
        found += [(endpoint, model) for model in (demo["base_model"], *tenant["adapters"])]
    return found


def _print(console: Console, title: str, answers: Sequence[Answer]) -> None:
    good = [answer for answer in answers if not answer.error and answer.frames_s]
    rows = {
        "time to first token": [answer.ttft_s for answer in good],
        "between tokens": [gap for answer in good for gap in answer.gaps_s],
        "whole answer": [answer.frames_s[-1] for answer in good],
    }
    table = Table("", "p50 ms", "p95 ms", "p99 ms", title=title)
    for name, values in rows.items():
        table.add_row(name, *(f"{1000 * percentile(values, share):.0f}" for share in (0.5, 0.95, 0.99)))
    console.print(table)
