"""A quiet tenant beside one that floods, before fake replicas whose every request takes the same time."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field

import aiohttp

from tests.rig.client import Answer, ask, body_of, session
from tests.rig.rig import Rig, TenantKey

TOKENS = 20
MOST_OPEN = 800


@dataclass
class Heard:
    """What one tenant's requests came to; `waits_s`: from sending to a place at a replica."""

    sent: dict[str, float] = field(default_factory=dict)  # by request id, when
    statuses: Counter[str] = field(default_factory=Counter)
    first_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    offered: int = 0

    def note(self, answer: Answer, sent_at: float) -> None:
        self.statuses["whole" if answer.whole else f"{answer.status} {answer.code}"] += 1
        if answer.whole:
            self.sent[answer.request_id] = sent_at
            self.first_s.append(answer.first_s)

    def match(self, began: dict[str, float]) -> None:
        self.waits_s = sorted(began[name] - at for name, at in self.sent.items())


def part(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def offer(rig: Rig, key: TenantKey, a_second: float, until: float, seed: int = 1) -> Heard:
    """Streams at random intervals, whether the ones before have ended or not, until the monotonic time
    `until`; with more than `MOST_OPEN` open the next one waits for one to end."""
    heard, draw, open_now = Heard(), random.Random(seed), set[asyncio.Task[None]]()
    async with session() as http:
        due = time.monotonic()
        while (due := due + draw.expovariate(a_second)) < until:
            await asyncio.sleep(due - time.monotonic())
            if len(open_now) >= MOST_OPEN:
                await asyncio.wait(open_now, return_when=asyncio.FIRST_COMPLETED)
            heard.offered += 1
            task = asyncio.create_task(_one(http, rig, key, heard))
            open_now.add(task)
            task.add_done_callback(open_now.discard)
        if open_now:
            await asyncio.wait(open_now)
    return heard


async def press(rig: Rig, key: TenantKey, at_a_time: int, until: float) -> Heard:
    """So many requests at a time, always, until the monotonic time `until`."""
    heard = Heard()

    async def client(http: aiohttp.ClientSession) -> None:
        while time.monotonic() < until:
            heard.offered += 1
            await _one(http, rig, key, heard)

    async with session() as http:
        await asyncio.gather(*(client(http) for _ in range(at_a_time)))
    return heard


async def _one(http: aiohttp.ClientSession, rig: Rig, key: TenantKey, heard: Heard) -> None:
    sent_at = time.time()
    body = body_of(rig.base_name, TOKENS, stream=True)
    heard.note(await ask(http, rig.base_url, key.headers, body), sent_at)


@dataclass(frozen=True)
class Window:
    """What replicas did in a span of time: places in use (1 = all, always), times between two places that
    come free (median, seconds), requests begun by tenant, and when each began."""

    used: float
    release_s: float
    begun: Counter[str]
    began: dict[str, float]


async def watched(rig: Rig, seconds: float, after_s: float = 0.0) -> Window:
    """Looks at the replicas for so long, beginning after a while."""
    await asyncio.sleep(after_s)
    began, before = time.time(), await asyncio.to_thread(rig.figures)
    at = time.monotonic()
    await asyncio.sleep(seconds)
    spent, ended, after = time.monotonic() - at, time.time(), await asyncio.to_thread(rig.figures, times=True)
    busy = sum(b["busy_s"] - a["busy_s"] for a, b in zip(before, after, strict=True))
    released = sorted(t for each in after for t in each["releases"] if began <= t <= ended)
    gaps = [b - a for a, b in zip(released, released[1:], strict=False)]
    rows = [row for each in after for row in each["begun"] if began <= row[3] <= ended]
    return Window(
        used=busy / (rig.shape.running * rig.shape.replicas * spent),
        release_s=statistics.median(gaps) if gaps else 0.0,
        begun=Counter(row[0] for row in rows),
        began={row[1]: row[3] for row in rows},
    )


async def all_began(rig: Rig) -> dict[str, float]:
    """When each request got its place."""
    figures = await asyncio.to_thread(rig.figures, times=True)
    return {row[1]: row[3] for each in figures for row in each["begun"]}
