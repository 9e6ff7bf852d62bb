"""The first token of an adapter that only the store has, beside the same request to one in a slot, in one
run, while other tenants stream: from a folder, and from an S3 server."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx

from adapters.base import BaseSpec
from deploy.bench.random_adapters import Recipe, write_adapter
from tests.acceptance.conftest import Record, is_short, times
from tests.churn import WORDS, Question, upload_all
from tests.fuzzing import fresh_key
from tests.running_platform import RunningPlatform
from tests.s3_server import RunningS3

RANK = 16  # all sites of all layers: 9.8 MB packed
COLD = 4
STREAMS = 3
WINDOW_S = 1.0
"""After a request's start: the tokens of others that come within it are those that it may have delayed."""
RATIO, FOLDER_MS, S3_MS = 1.5, 100.0, 300.0
MOST_RISE = 1.10
RESTART_S = 120.0
S3_NICENESS = 15
"""The S3 server stands for another machine: what it computes is not to take the replica's cores."""


@dataclass
class Measured:
    """Milliseconds. Gaps are between tokens of other tenants' streams."""

    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    gaps: list[tuple[float, float]] = field(default_factory=list)  # when it ended (monotonic s), and length
    starts: dict[str, list[float]] = field(default_factory=lambda: {"cold": [], "warm": [], "quiet": []})
    warm_again_s: float = 0.0  # from when a killed replica was back until it held what was hot
    loads: int = 0  # from the store, by the replica's own count

    def p95_gap(self, kind: str) -> float:
        within = [
            gap for at, gap in self.gaps if any(start <= at < start + WINDOW_S for start in self.starts[kind])
        ]
        return p95(within)


def p95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1]


def test_cold_start(demo_model_dir: Path, tmp_path: Path, record: Record) -> None:
    rounds = times(60, 6)
    folder = asyncio.run(_measured(demo_model_dir, tmp_path, {}, rounds))
    with _s3() as environment:
        s3 = asyncio.run(_measured(demo_model_dir, tmp_path, environment, rounds))
    found = {"folder": (folder, FOLDER_MS), "S3 server": (s3, S3_MS)}
    figures: dict[str, object] = {"first tokens of each kind, by store": len(folder.cold)}
    for name, (measured, more_ms) in found.items():
        figures |= _figures(name, measured, more_ms)
    record.write(
        f"An adapter of 9.8 MB (rank {RANK}, all sites) that its replica was told to forget, in slots, "
        "memory and on disk, so that only the store has it; then the same adapter again, in its slot. "
        f"Prompts are fresh. {STREAMS} streams of other tenants run all the time, each over an adapter of "
        f"its own; their gaps are those within {WINDOW_S:g} s of a cold request's start, beside those after "
        "a warm one's. The S3 server stands for another machine, and runs "
        f"at nice {S3_NICENESS}. At the end the replica is killed, and nobody asks for anything.",
        figures,
    )
    for measured, more_ms in found.values():
        assert measured.loads == len(measured.cold)
        if not is_short():
            assert median(measured.cold) <= RATIO * median(measured.warm) + more_ms
            assert p95(measured.cold) <= RATIO * p95(measured.warm) + more_ms
            assert measured.p95_gap("cold") <= MOST_RISE * measured.p95_gap("warm")


def _figures(name: str, measured: Measured, more_ms: float) -> dict[str, object]:
    def pair(values: list[float]) -> str:
        return f"{median(values):.0f}, {p95(values):.0f}"

    bound = RATIO * median(measured.warm) + more_ms
    gaps = ", ".join(f"{kind} {measured.p95_gap(kind):.1f}" for kind in measured.starts)
    return {
        f"{name}: warm first token, ms (p50, p95)": pair(measured.warm),
        f"{name}: cold first token, ms (p50, p95)": pair(measured.cold),
        f"{name}: bound of the median, ms": f"{bound:.0f}",
        f"{name}: others' gaps, ms (p95)": gaps,
        f"{name}: adapters in memory again so long after a killed replica's return, s": (
            f"{measured.warm_again_s:.1f}"
        ),
    }


async def _measured(model: Path, tmp_path: Path, environment: Mapping[str, str], rounds: int) -> Measured:
    with tempfile.TemporaryDirectory(prefix="motet-cold-", ignore_cleanup_errors=True) as home:
        platform = RunningPlatform(Path(home), model, "--no-demo", environment=environment)
        await asyncio.to_thread(platform.start)
        try:
            async with _parts(platform.demo(), model, tmp_path) as run:
                await run.measure(rounds)
                await run.restart(platform.demo()["engines"][0]["pid"])
                return run.measured
        finally:
            await asyncio.to_thread(platform.stop)


@asynccontextmanager
async def _parts(demo: dict[str, Any], model: Path, tmp_path: Path) -> AsyncIterator[_Run]:
    """A tenant with the cold adapters, and one for each stream."""
    base = BaseSpec.from_dir(model, demo["base_model"])
    url = str(demo["base_url"]).removesuffix("/").removesuffix("/v1")
    replica = demo["engines"][0]
    operator = {"authorization": f"Bearer {demo['admin']['token']}"}
    with httpx.Client(base_url=url, headers=operator, timeout=60) as admin, ExitStack() as stack:
        keys = [stack.enter_context(fresh_key(admin)) for _ in range(1 + STREAMS)]
        clients = [
            httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=120)
            for key in keys
        ]
        engine = httpx.AsyncClient(
            base_url=replica["url"], headers={"authorization": f"Bearer {replica['token']}"}, timeout=60
        )
        cold = [write_adapter(tmp_path / f"cold-{n}", base, Recipe(n, RANK, std=0.01)) for n in range(COLD)]
        names = await upload_all(clients[0], cold)
        streamed = [
            await upload_all(client, [write_adapter(tmp_path / f"stream-{n}", base, Recipe(90 + n))])
            for n, client in enumerate(clients[1:])
        ]
        yield _Run(clients, engine, names, [name for (name,) in streamed])
        for client in (*clients, engine):
            await client.aclose()


@dataclass
class _Run:
    clients: list[httpx.AsyncClient]  # the first one has the cold adapters
    engine: httpx.AsyncClient
    names: list[str]
    streamed: list[str]
    measured: Measured = field(default_factory=Measured)
    draw: random.Random = field(default_factory=lambda: random.Random(7))

    async def measure(self, rounds: int) -> None:
        artefacts = [await self._artefact(name) for name in self.names]
        streams = [
            asyncio.create_task(self._stream_forever(client, name))
            for client, name in zip(self.clients[1:], self.streamed, strict=True)
        ]
        await asyncio.sleep(3.0)
        await self._probe(self.names[0], "first")  # connections, code paths
        before = (await self._stats())["adapter_loads_total"]["store"]
        for number in range(rounds):
            name = self.names[number % COLD]
            await self._forget(artefacts[number % COLD])
            await self._note("quiet")
            self.measured.cold.append(await self._probe(name, "cold"))
            self.measured.warm.append(await self._probe(name, "warm"))
        self.measured.loads = (await self._stats())["adapter_loads_total"]["store"] - before
        for stream in streams:
            stream.cancel()
        ended = await asyncio.gather(*streams, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended

    async def restart(self, pid: int) -> None:
        """Kills the replica, and waits until it holds again what was hot, with nobody asking."""
        await asyncio.sleep(5.0)  # until the ledger has them all
        os.kill(pid, signal.SIGKILL)
        await self._until(lambda held: held is None)
        await self._until(lambda held: held is not None)
        began = time.monotonic()
        await self._until(lambda held: held is not None and len(held) == COLD + STREAMS)
        self.measured.warm_again_s = time.monotonic() - began

    async def _until(self, wanted: Callable[[list[str] | None], bool]) -> None:
        """`wanted` of what the replica has in memory, None while it does not answer."""
        deadline = time.monotonic() + RESTART_S
        while time.monotonic() < deadline:
            try:
                state = (await self.engine.get("/internal/state", params={"once": 1})).json()
                held = state["stats"]["host"] if state["ready"] and state["stats"] else None
            except httpx.TransportError:
                held = None
            if wanted(held):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the replica did not come back, or not with what it had")

    async def _note(self, kind: str) -> None:
        self.measured.starts[kind].append(time.monotonic())
        await asyncio.sleep(WINDOW_S)

    async def _probe(self, name: str, kind: str) -> float:
        """Milliseconds to the first token; ends when the window is over."""
        began = time.monotonic()
        if kind in self.measured.starts:
            self.measured.starts[kind].append(began)
        first = 0.0
        async for at in _tokens(self.clients[0], self._body(name, 4)):
            first = first or at
        await asyncio.sleep(max(0.0, WINDOW_S - (time.monotonic() - began)))
        return (first - began) * 1000

    async def _stream_forever(self, client: httpx.AsyncClient, name: str) -> None:
        while True:
            last = None
            async for at in _tokens(client, self._body(name, 400)):
                if last is not None:
                    self.measured.gaps.append((at, (at - last) * 1000))
                last = at

    def _body(self, name: str, max_tokens: int) -> dict[str, Any]:
        prompt = " ".join(self.draw.choices(WORDS, k=24))
        return Question(name, prompt, max_tokens).body(stream=True)

    async def _artefact(self, name: str) -> str:
        """Of its only version."""
        version = (await self.clients[0].get(f"/v1/adapters/{name}/versions/1")).json()
        assert 9.5e6 < version["bytes"] < 10.5e6
        return str(version["artefact"])

    async def _forget(self, artefact: str) -> None:
        answer = await self.engine.delete(f"/internal/adapters/{artefact}")
        assert answer.status_code == 202, answer.text
        for _ in range(100):
            await asyncio.sleep(0.1)
            if artefact not in (await self._stats())["host"]:
                return
        raise AssertionError(f"{artefact} did not leave the replica")

    async def _stats(self) -> dict[str, Any]:
        state = await self.engine.get("/internal/state", params={"once": 1})
        stats: dict[str, Any] = state.json()["stats"]
        return stats


async def _tokens(client: httpx.AsyncClient, body: dict[str, Any]) -> AsyncIterator[float]:
    """When each token came, by the monotonic clock."""
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            at = time.monotonic()
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            for choice in json.loads(line.removeprefix("data: "))["choices"]:
                for _ in choice["token_ids"] or ():
                    yield at


@contextmanager
def _s3() -> Iterator[dict[str, str]]:
    """The environment of processes whose store is a bucket of a server that runs meanwhile."""
    with tempfile.TemporaryDirectory(prefix="motet-s3-", ignore_cleanup_errors=True) as folder:
        running = RunningS3(Path(folder), S3_NICENESS)
        try:
            running.start()
            server = running.server
            yield {
                "MOTET_STORE_URL": server.url("cold"),
                "AWS_ACCESS_KEY_ID": server.access_key,
                "AWS_SECRET_ACCESS_KEY": server.secret_key,
            }
        finally:
            running.kill()
