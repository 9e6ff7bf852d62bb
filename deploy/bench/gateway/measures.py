"""What is measured of a target, and its unit. Every figure is for the whole process tree of the gateway; the
load, the fake replica and the databases run on the other cores."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf

import aiohttp

from deploy.bench.gateway.http_load import OpenStream, Tally, load, open_streams, prompts
from deploy.bench.gateway.targets import Target

CONNECTIONS = 32
SECONDS = 5.0
WARM_S = 1.0
LONE_S = 3.0
PACED_MS = 5
IDLE_STREAMS = 2_000
BUSY = 0.9
"""Of its core: a saturation run in which the gateway used less measured something else."""


@dataclass(frozen=True)
class Figure:
    """One measured value."""

    value: float
    note: str = ""  # why it should not be trusted


@dataclass(frozen=True)
class Bench:
    """Where a target's answers come from."""

    upstream: str

    async def pace(self, ms: float = 0, *, hold: bool = False) -> None:
        url = f"{self.upstream}/pace?ms={ms}&hold={int(hold)}"
        async with aiohttp.ClientSession() as session, session.post(url) as answer:
            answer.raise_for_status()

    def direct(self) -> str:
        return f"{self.upstream}/v1/chat/completions"


Measure = Callable[[Bench, Target], Awaitable[dict[str, Figure]]]


async def unary(bench: Bench, target: Target) -> dict[str, Figure]:
    """Requests a second with the gateway's core busy, and what a thousand of them cost of it."""
    tally, cpu_s = await _saturated(target, stream=False)
    note = _idle_note(cpu_s, tally)
    return {
        "unary_rps": Figure(tally.requests / tally.wall_s, note),
        "unary_cpu": Figure(cpu_s / tally.requests * 1000),
    }


async def zero_delay(bench: Bench, target: Target) -> dict[str, Figure]:
    """CPU seconds per 100,000 frames that come as fast as they are taken."""
    await bench.pace(0)
    tally, cpu_s = await _saturated(target, stream=True)
    return {"zero_delay_cpu": Figure(cpu_s / tally.frames * 100_000)}


async def paced(bench: Bench, target: Target) -> dict[str, Figure]:
    """CPU seconds per 100,000 frames of 32 streams, each one in 5 ms: none can be joined with the next."""
    await bench.pace(PACED_MS)
    try:
        tally, cpu_s = await _saturated(target, stream=True)
    finally:
        await bench.pace(0)
    return {"paced_cpu": Figure(cpu_s / tally.frames * 100_000)}


async def lone(bench: Bench, target: Target) -> dict[str, Figure]:
    """Milliseconds that a lone client waits longer than at the replica itself: median and 99th percentile."""
    direct = await load(bench.direct(), {}, prompts(target.model, stream=False), connections=1, seconds=1.0)
    bodies = prompts(target.model, stream=False)
    through = await load(target.url, target.headers, bodies, connections=1, seconds=LONE_S)
    base = statistics.median(direct.whole_s)
    spread = statistics.quantiles(through.whole_s, n=100, method="inclusive")
    return {"added_p50": Figure((spread[49] - base) * 1000), "added_p99": Figure((spread[98] - base) * 1000)}


async def idle_streams(bench: Bench, target: Target) -> dict[str, Figure]:
    """MiB of the process tree with 2,000 streams open that have had their first frame."""
    await bench.pace(0, hold=True)
    bodies = prompts(target.model, stream=True)
    streams: list[OpenStream] = []
    try:
        await open_streams(target.url, target.headers, bodies, IDLE_STREAMS, streams)
        return {"idle_mib": Figure(target.memory_bytes() / 2**20)}
    except TimeoutError:
        return {"idle_mib": Figure(inf, "it could not open them")}
    finally:
        for stream in streams:
            stream.close()
        await bench.pace(0)
        await asyncio.sleep(2)  # their ends are counted in nobody's figure


async def _saturated(target: Target, *, stream: bool) -> tuple[Tally, float]:
    """After a warm-up, the load and the CPU seconds that it took."""
    bodies = prompts(target.model, stream=stream)
    await load(target.url, target.headers, bodies, connections=CONNECTIONS, seconds=WARM_S)
    before = target.cpu_s()
    tally = await load(target.url, target.headers, bodies, connections=CONNECTIONS, seconds=SECONDS)
    return tally, target.cpu_s() - before


def _idle_note(cpu_s: float, tally: Tally) -> str:
    share = cpu_s / tally.wall_s
    return "" if share >= BUSY else f"its core was busy for {share:.0%} only"
