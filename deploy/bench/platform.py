"""`make bench ARGS=platform`: an open-loop load over every demo adapter and the base, and what clients feel.

Arrivals are drawn beforehand (Poisson, seeded) and kept whatever the answers do: a closed loop would slow
with the server and hide its queue. Times run from the moment a request was due, not when it was sent.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
from rich.console import Console
from rich.table import Table

from deploy.bench.load import percentile

PROMPT = "Explain in a few sentences why the sky is blue, to somebody aged {age}."
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Caller:
    """Who asks for which model."""

    api_key: str
    model: str


@dataclass
class Answer:
    """One stream, in seconds after it was due."""

    frames_s: list[float] = field(default_factory=list)  # of frames with text
    num_tokens: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Load:
    url: str
    callers: Sequence[Caller]
    num_requests: int
    rate: float  # requests a second
    max_tokens: int
    seed: int


def main(
    home: Annotated[Path, typer.Option(help="Home of the running platform.")] = Path("var"),
    requests: Annotated[int, typer.Option(min=1, max=100_000)] = 64,
    rate: Annotated[float, typer.Option(min=0.01, help="Requests a second.")] = 2.0,
    max_tokens: Annotated[int, typer.Option(min=1, max=4_096)] = 64,
    seed: int = 1,
) -> None:
    """Measure a platform that `motet up` runs."""
    demo = json.loads((home / "demo.json").read_text())
    load = Load(f"{demo['base_url']}/chat/completions", _callers(demo), requests, rate, max_tokens, seed)
    began = time.perf_counter()
    answers = asyncio.run(_run(load))
    _print(load, answers, time.perf_counter() - began)
    if any(answer.error for answer in answers):
        raise typer.Exit(1)


def _callers(demo: dict[str, Any]) -> list[Caller]:
    return [
        Caller(tenant["api_key"], model)
        for tenant in demo["tenants"]
        for model in (demo["base_model"], *tenant["adapters"])
    ]


async def _run(load: Load) -> list[Answer]:
    dice = random.Random(load.seed)  # noqa: S311 - arrivals, not secrets
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        start, due = asyncio.get_running_loop().time(), 0.0
        calls = []
        for number in range(load.num_requests):
            due += dice.expovariate(load.rate)
            caller = load.callers[number % len(load.callers)]
            calls.append(_call(session, load, caller, start + due))
        return list(await asyncio.gather(*calls))


async def _call(session: aiohttp.ClientSession, load: Load, caller: Caller, due: float) -> Answer:
    loop, answer = asyncio.get_running_loop(), Answer()
    await asyncio.sleep(max(0.0, due - loop.time()))
    body = {
        "model": caller.model,
        "messages": [{"role": "user", "content": PROMPT.format(age=5 + len(caller.model))}],
        "max_tokens": load.max_tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"authorization": f"Bearer {caller.api_key}"}
    try:
        async with session.post(load.url, json=body, headers=headers) as response:
            if response.status != 200:
                answer.error = f"{response.status}: {(await response.text())[:200]}"
                return answer
            async for line in response.content:
                _take(answer, line, loop.time() - due)
    except (aiohttp.ClientError, TimeoutError) as error:
        answer.error = repr(error)
    return answer


def _take(answer: Answer, line: bytes, at_s: float) -> None:
    if not line.startswith(b"data: {"):
        return
    frame = json.loads(line[6:])
    if "error" in frame:
        answer.error = str(frame["error"])
    elif frame.get("usage"):
        answer.num_tokens = frame["usage"]["completion_tokens"]
    elif frame["choices"] and frame["choices"][0]["delta"].get("content"):
        answer.frames_s.append(at_s)


def _print(load: Load, answers: Sequence[Answer], seconds: float) -> None:
    good = [answer for answer in answers if not answer.error and answer.frames_s]
    gaps = [b - a for answer in good for a, b in zip(answer.frames_s, answer.frames_s[1:], strict=False)]
    rows = {
        "time to first token": [answer.frames_s[0] for answer in good],
        "between tokens": gaps,
        "whole answer": [answer.frames_s[-1] for answer in good],
    }
    table = Table("", "p50 ms", "p95 ms", "p99 ms", title=f"{load.num_requests} requests at {load.rate}/s")
    for name, values in rows.items():
        table.add_row(name, *(f"{1000 * percentile(values, share):.0f}" for share in (0.5, 0.95, 0.99)))
    console = Console()
    console.print(table)
    tokens = sum(answer.num_tokens for answer in good)
    console.print(
        f"{tokens} tokens in {seconds:.1f} s: {tokens / seconds:.1f} a second over {len(load.callers)} models"
    )
    errors = [answer.error for answer in answers if answer.error]
    console.print(f"{len(errors)} errors" + (f", the first: {errors[0]}" if errors else ""), markup=False)
