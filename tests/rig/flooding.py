"""A quiet tenant beside one that floods. The quiet one's client is a process of its own: what keeps the
flood's client busy must not be taken for a wait."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import statistics
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import aiohttp

from tests.rig.client import Answer, ask, body_of, session
from tests.rig.rig import Rig


@dataclass(frozen=True)
class Target:
    """Where a tenant's streams go, with its credential; `a_second` at random intervals."""

    base_url: str
    model: str
    headers: dict[str, str]
    tokens: int = 20
    a_second: float = 1.0
    more: dict[str, Any] = field(default_factory=dict)  # fields of the body


@dataclass
class Heard:
    """What one tenant's requests came to. `waits_s`: from sending to a replica, through door and queue;
    `overtaken_by`: how many others came to one meanwhile."""

    sent: dict[str, float] = field(default_factory=dict)  # by request id, when
    statuses: Counter[str] = field(default_factory=Counter)
    first_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    overtaken_by: list[int] = field(default_factory=list)
    offered: int = 0

    def note(self, answer: Answer, sent_at: float) -> None:
        self.statuses["whole" if answer.whole else f"{answer.status} {answer.code}"] += 1
        if answer.whole:
            self.sent[answer.request_id] = sent_at
            self.first_s.append(answer.first_s)

    def match(self, arrived: dict[str, float]) -> None:
        """Finds its waits, given when all requests came to a replica."""
        order = sorted(arrived.values())
        waits = [(at, arrived[name]) for name, at in self.sent.items()]
        self.waits_s = [came - at for at, came in waits]
        self.overtaken_by = [bisect_left(order, came) - bisect_left(order, at) for at, came in waits]


def part(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def offer(target: Target, until: float, seed: int = 1) -> Heard:
    """Streams at random intervals, whether the ones before have ended or not, until the monotonic time
    `until`."""
    heard, draw, open_now = Heard(), random.Random(seed), set[asyncio.Task[None]]()
    async with session() as http:
        due = time.monotonic()
        while (due := due + draw.expovariate(target.a_second)) < until:
            await asyncio.sleep(due - time.monotonic())
            heard.offered += 1
            task = asyncio.create_task(_one(http, target, heard))
            open_now.add(task)
            task.add_done_callback(open_now.discard)
        if open_now:
            await asyncio.wait(open_now)
    return heard


async def offer_apart(target: Target, until: float, seed: int = 1) -> Heard:
    """The same from another process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, _offer, target, until, seed)


def _offer(target: Target, until: float, seed: int) -> Heard:
    return asyncio.run(offer(target, until, seed))


async def press(target: Target, at_a_time: int, until: float) -> Heard:
    """So many requests at a time, always, until the monotonic time `until`."""
    heard = Heard()

    async def client(http: aiohttp.ClientSession) -> None:
        while time.monotonic() < until:
            heard.offered += 1
            await _one(http, target, heard)

    async with session() as http:
        await asyncio.gather(*(client(http) for _ in range(at_a_time)))
    return heard


async def _one(http: aiohttp.ClientSession, target: Target, heard: Heard) -> None:
    sent_at = time.time()
    body = body_of(target.model, target.tokens, stream=True, **target.more)
    heard.note(await ask(http, target.base_url, target.headers, body), sent_at)


@dataclass(frozen=True)
class Window:
    """What replicas did in a span of time: places in use (1 = all, always), times between two places that
    come free (median, seconds), and requests begun by tenant."""

    used: float
    release_s: float
    begun: Counter[str]


async def watched(rig: Rig, seconds: float, after_s: float = 0.0) -> Window:
    """Looks at the replicas for so long, beginning after a while."""
    await asyncio.sleep(after_s)
    began, before = time.time(), await asyncio.to_thread(rig.figures)
    at = time.monotonic()
    await asyncio.sleep(seconds)
    spent, ended, after = time.monotonic() - at, time.time(), await asyncio.to_thread(rig.figures, times=True)
    busy = sum(b["busy_s"] - a["busy_s"] for a, b in zip(before, after, strict=True))
    released = sorted(t for each in after for t in each["releases"] if began <= t <= ended)
    gaps = [b - a for a, b in pairwise(released)]
    rows = [row for each in after for row in each["begun"] if began <= row[3] <= ended]
    return Window(
        used=busy / (rig.shape.running * rig.shape.replicas * spent),
        release_s=statistics.median(gaps) if gaps else 0.0,
        begun=Counter(row[0] for row in rows),
    )


async def all_arrived(rig: Rig) -> dict[str, float]:
    """When each request came to a replica."""
    figures = await asyncio.to_thread(rig.figures, times=True)
    return {row[1]: row[2] for each in figures for row in each["begun"]}
