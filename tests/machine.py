"""The processes of a running platform by what they are, and what must be true of it when nothing runs."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import sqlalchemy as sa
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from migrations import async_url
from tests.metering import Difference, compare, settled
from tests.running_platform import RunningPlatform

LEASE_S = 60.0
LOOK_S = 0.2
TWICE_BILLED = sa.text(
    "SELECT request_id::text FROM usage_ledger WHERE billed_prompt_tokens > 0 OR billed_completion_tokens > 0"
    " GROUP BY request_id HAVING count(*) > 1"
)


class Machine:
    """Finds processes anew each time: they are what gets replaced."""

    def __init__(self, platform: RunningPlatform) -> None:
        self.platform = platform

    @property
    def demo(self) -> dict[str, Any]:
        return self.platform.demo()

    @property
    def base_url(self) -> str:
        return str(self.demo["base_url"]).removesuffix("/v1")

    def one(self, *words: str) -> psutil.Process:
        """The process of the platform whose command line has all the words; the oldest of several."""
        found = self.all(*words)
        assert found, f"no process {words}"
        return found[0]

    def all(self, *words: str) -> list[psutil.Process]:
        matching = [each for each in self.platform.processes() if _matches(each, words)]
        return sorted(matching, key=lambda process: process.create_time())

    def workers(self) -> list[psutil.Process]:
        return self.all("gateway.worker")

    def cores(self) -> list[psutil.Process]:
        return self.all("engine.core_process")

    @contextmanager
    def stopped(self, *words: str) -> Iterator[None]:
        """SIGSTOP to all that match, SIGCONT at the end: what a hang looks like."""
        held = self.all(*words)
        for process in held:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in held:
                if process.is_running():
                    process.send_signal(signal.SIGCONT)

    async def until_ready(self, limit_s: float) -> float:
        """Seconds until a completion succeeds."""
        began = time.monotonic()
        async with httpx.AsyncClient(base_url=self.base_url, timeout=70) as client:
            while not await _answers(client, "/readyz", {"deep": 1}):
                assert time.monotonic() - began < limit_s, self.platform.said()[-2_000:]
        return time.monotonic() - began

    async def until_replicas_are_ready(self, limit_s: float) -> None:
        """All of them, also one that is being started anew."""
        began = time.monotonic()
        for number in range(len(self.demo["engines"])):
            while not await self._is_ready(number):
                assert time.monotonic() - began < limit_s, self.platform.said()[-2_000:]

    async def _is_ready(self, number: int) -> bool:
        replica = self.demo["engines"][number]
        headers = {"authorization": f"Bearer {replica['token']}"}
        async with httpx.AsyncClient(base_url=replica["url"], headers=headers, timeout=10) as engine:
            return await _answers(engine, "/readyz", {})

    # What must be true at rest

    async def difference(self, limit_s: float) -> Difference:
        """Ledger against the journals of all replicas."""

        async def look() -> Difference:
            demo, parts = self.demo, []
            for replica in demo["engines"]:
                headers = {"authorization": f"Bearer {replica['token']}"}
                with httpx.Client(base_url=replica["url"], headers=headers, timeout=60) as engine:
                    parts.append(await compare(engine, demo["database_url"]))
            return Difference(
                sum(part.lines for part in parts),
                [name for part in parts for name in part.missing],
                [name for part in parts for name in part.unequal],
                sum(part.tokens for part in parts),
            )

        return await settled(look, limit_s)

    async def billed_twice(self) -> list[str]:
        engine = create_async_engine(async_url(self.demo["database_url"]))
        try:
            async with engine.connect() as connection:
                return [row[0] for row in await connection.execute(TWICE_BILLED)]
        finally:
            await engine.dispose()

    async def held(self, limit_s: float) -> list[str]:
        """What is still held when everything has ended: leases, blocks, requests, files of uploads."""
        deadline = time.monotonic() + limit_s
        while True:
            found = await self._held_now()
            if not found or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.5)

    async def _held_now(self) -> list[str]:
        demo = self.demo
        found = [f"upload {path.name}" for path in (self.platform.home / "uploads").glob("upload-*")]
        found += [f"file {path}" for path in temporary_files(self.platform.home)]
        for replica in demo["engines"]:
            headers = {"authorization": f"Bearer {replica['token']}"}
            async with httpx.AsyncClient(base_url=replica["url"], headers=headers, timeout=30) as engine:
                stats = (await engine.get("/internal/state", params={"once": 1})).json()["stats"]
            found += [
                f"{name} {stats[name]}" for name in ("running", "waiting", "blocks_used") if stats[name]
            ]
        async with Redis.from_url(demo["redis_url"]) as redis:
            seconds, microseconds = await redis.time()
            now = seconds * 1_000_000 + microseconds
            for key in await redis.keys("*:leases"):
                if count := await redis.zcount(key, now, "+inf"):
                    found.append(f"{count} leases in {key!r}")
        return found


async def _answers(client: httpx.AsyncClient, path: str, params: dict[str, int]) -> bool:
    """Whether it says 200; a short wait where it does not."""
    try:
        answer = await client.get(path, params=params)
    except httpx.HTTPError:
        answer = None
    if answer is None or answer.status_code != 200:
        await asyncio.sleep(LOOK_S)
        return False
    return True


def temporary_files(home: Path) -> list[Path]:
    """Drafts of files that were never finished."""
    folders = (home / "store", home / "cache")
    return [path for folder in folders for path in folder.rglob("*.tmp")]


def _matches(process: psutil.Process, words: tuple[str, ...]) -> bool:
    try:
        command = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return all(word in command for word in words)
