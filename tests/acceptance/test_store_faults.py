"""`motet up` over a real S3 server that is killed, and a gateway worker that is killed, at every request of
an upload and of a cold load; and a store that is wrong in other ways. After each: nothing lost, nothing
orphaned, the same engine."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from adapters.base import BaseSpec
from adapters.store import ObjectStore, open_store
from deploy.bench.random_adapters import Recipe, write_adapter
from gateway.catalog.lifecycle import Shelf
from gateway.db import Database
from gateway.store_checks.found import Found
from gateway.store_checks.fsck import Fsck
from tests.acceptance.conftest import Record, is_short
from tests.churn import PARTS
from tests.machine import Machine
from tests.running_platform import RunningPlatform
from tests.s3_proxy import Fault, Proxy, proxied
from tests.s3_server import BUCKET, RunningS3

READY_S = 120.0
HEALS_S = 90.0
HONEST = {201, 503}
RANK = 32  # some twenty megabytes: an upload in parts, a load in ranges


class NoHints:
    def prefetch(self, owner: Any, artefact: str) -> None: ...

    def retire(self, owner: Any, artefact: str) -> None: ...


@dataclass
class Rig:
    machine: Machine
    s3: RunningS3
    proxy: Proxy
    store: ObjectStore  # straight, without the proxy
    db: Database
    folder: Path
    base: BaseSpec
    seed: int = 0
    told: Counter[str] = field(default_factory=Counter)

    @property
    def client(self) -> httpx.AsyncClient:
        (key,) = (each["api_key"] for each in self.machine.demo["tenants"] if each["name"] == "acme")
        return httpx.AsyncClient(
            base_url=self.machine.base_url, headers={"authorization": f"Bearer {key}"}, timeout=300
        )

    @property
    def owner(self) -> str:
        return next(str(each["id"]) for each in self.machine.demo["tenants"] if each["name"] == "acme")

    def parts(self) -> dict[str, bytes]:
        """Of an adapter that was never uploaded."""
        self.seed += 1
        recipe = Recipe(10_000 + self.seed, rank=RANK, std=0.05)
        folder = write_adapter(self.folder / str(self.seed), self.base, recipe)
        return {part: (folder / part).read_bytes() for part in PARTS}

    async def upload(self, name: str, files: dict[str, bytes]) -> httpx.Response | None:
        """None when the connection broke."""
        async with self.client as client:
            try:
                return await client.post(f"/v1/adapters/{name}/versions", files=files)
            except httpx.HTTPError:
                return None

    async def until_taken(self, name: str, files: dict[str, bytes]) -> dict[str, Any]:
        """As a client that comes again when it is told to."""
        until = time.monotonic() + HEALS_S
        while True:
            answer = await self.upload(name, files)
            if answer is not None and answer.status_code in (200, 201):
                taken: dict[str, Any] = answer.json()
                return taken
            assert time.monotonic() < until, None if answer is None else answer.text
            await asyncio.sleep(1)

    async def ask(self, model: str) -> httpx.Response:
        body = {"model": model, "prompt": "Once", "max_tokens": 4, "temperature": 0}
        async with self.client as client:
            return await client.post("/v1/completions", json=body)

    async def until_it_answers(self, model: str) -> None:
        until = time.monotonic() + HEALS_S
        while (answer := await self.ask(model)).status_code != 200:
            assert time.monotonic() < until, answer.text
            await asyncio.sleep(0.5)

    async def until_ready(self) -> None:
        """The server and the workers are there again."""
        self.proxy.begin()
        if self.s3.process is None:
            await asyncio.to_thread(self.s3.start)
        await self.machine.until_ready(READY_S)

    async def check(self, *, repair: bool) -> Found:
        """As control does, but for the hour that it gives an upload."""
        fsck = Fsck(self.db, Shelf(self.db, self.store, NoHints()), orphan_age_s=-60)
        return await fsck.check(repair=repair, depth="full")

    async def assert_whole(self, what: str) -> Found:
        """What a check finds; after it has mended what it may, nothing."""
        found = await self.check(repair=True)
        assert found.missing + found.truncated + found.corrupt == 0, (what, found)
        again = await self.check(repair=False)
        assert again.faults == 0, (what, again)
        return found

    async def make_cold(self, artefact: str) -> None:
        replica = self.machine.demo["engines"][0]
        headers = {"authorization": f"Bearer {replica['token']}"}
        async with httpx.AsyncClient(base_url=replica["url"], headers=headers, timeout=60) as engine:
            gone = await engine.delete(f"/internal/adapters/{artefact}", params={"owner": self.owner})
            assert gone.status_code == 202
            until = time.monotonic() + 15
            while True:
                state = (await engine.get("/internal/state", params={"once": 1})).json()["stats"]
                cached = list(self.machine.platform.home.rglob(f"*{artefact}*"))
                if artefact not in state["host"] and not cached:
                    return
                assert time.monotonic() < until
                await asyncio.sleep(0.2)


@pytest.fixture
async def rig(demo_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    (tmp_path / "s3").mkdir()
    s3 = RunningS3(tmp_path / "s3")
    s3.start()
    keys = {
        "AWS_ACCESS_KEY_ID": s3.server.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.server.secret_key,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    with proxied(s3.server) as (proxy, seen):
        environment = {"MOTET_STORE_URL": f"s3://{BUCKET}/motet?endpoint={seen.endpoint}", **keys}
        platform = RunningPlatform(
            tmp_path / "home", demo_model_dir, "--workers", "1", environment=environment
        )
        platform.home.mkdir()
        await asyncio.to_thread(platform.start)
        machine = Machine(platform)
        url = str(machine.demo["database_url"])
        db = Database(url, url)
        base = BaseSpec.from_dir(demo_model_dir, machine.demo["base_model"])
        store = open_store(f"s3://{BUCKET}/motet?endpoint={s3.server.endpoint}")
        yield Rig(machine, s3, proxy, store, db, tmp_path / "adapters", base)
        await db.close()
        await asyncio.to_thread(platform.stop)
    s3.kill()


async def test_store_faults(rig: Rig, record: Record) -> None:
    engine = rig.machine.cores()[0].pid
    figures: dict[str, object] = {}
    rig.proxy.begin()
    made = await rig.upload("dry", rig.parts())
    assert made is not None
    assert made.status_code == 201, made.text
    await asyncio.sleep(5)  # the prefetch after it
    steps = len(rig.proxy.seen)
    figures["requests of an upload and its load"] = ", ".join(
        f"{count} {method}" for method, count in Counter(e.split()[0] for e in rig.proxy.seen).items()
    )
    for victim, kill in (("the store", rig.s3.kill), ("a worker", lambda: _kill_worker(rig))):
        ended = Counter[str]()
        for step in range(1, steps + 1, 6 if is_short() else 1):
            for fault in (Fault(step, 1, before=kill), Fault(step, 1, after=kill)):
                ended[await _killed_while_uploading(rig, fault)] += 1
        figures[f"kill -9 of {victim} before and after each request of an upload"] = _told(ended)
    figures["kill -9 of the store at each request of a cold load"] = await _killed_while_loading(rig)
    for name, fault in (
        ("answers 500", Fault(status=500)),
        ("answers 403", Fault(status=403)),
        ("answers 507", Fault(status=507)),
        ("cuts every answer", Fault(cut=True)),
        ("is slow: 2 s a request", Fault(delay_s=2)),
    ):
        figures[f"the store {name}, an upload"] = await _wrong_while_uploading(rig, fault)
    assert rig.machine.cores()[0].pid == engine
    figures["engine restarts"] = 0
    found = await rig.check(repair=False)
    figures["at the end"] = f"{found.kept} artefacts kept, {found.stored} stored, {found.faults} faults"
    record.write(
        "`motet up` over SeaweedFS; the store, then the gateway's worker, is killed at each request that an "
        "upload makes to it, the store at each of a cold load too. After each a check reads all objects.",
        figures,
    )
    assert found.faults == 0


async def _killed_while_uploading(rig: Rig, fault: Fault) -> str:
    """Then the same upload again: it must succeed, and answer. Gives how the first one ended."""
    name, files = f"a{uuid4().hex[:12]}", rig.parts()
    rig.proxy.begin(fault)
    answer = await rig.upload(name, files)
    await rig.until_ready()
    if answer is None:
        ended = "connection broke"
    else:
        assert answer.status_code in HONEST, answer.text
        ended = "201" if answer.status_code == 201 else f"503 {answer.json()['error']['code']}"
    await rig.assert_whole(f"{name}: {fault}")
    again = await rig.until_taken(name, files)
    assert again["version"] == 1
    await rig.until_it_answers(name)
    return ended


async def _killed_while_loading(rig: Rig) -> str:
    name = "cold"
    artefact = (await rig.until_taken(name, rig.parts()))["artefact"]
    await rig.until_it_answers(name)
    await rig.make_cold(artefact)
    rig.proxy.begin()
    assert (await rig.ask(name)).status_code == 200
    ended = Counter[str]()
    for step in range(1, len(rig.proxy.seen) + 1, 3 if is_short() else 1):
        await rig.make_cold(artefact)
        rig.proxy.begin(Fault(first=step, times=1, before=rig.s3.kill))
        answer = await rig.ask(name)
        assert answer.status_code in (200, 503), answer.text
        ended["200" if answer.status_code == 200 else f"503 {answer.json()['error']['code']}"] += 1
        await rig.until_ready()
        await rig.until_it_answers(name)
    await rig.assert_whole("loads")
    return _told(ended)


async def _wrong_while_uploading(rig: Rig, fault: Fault) -> str:
    name, files = f"a{uuid4().hex[:12]}", rig.parts()
    rig.proxy.begin(fault)
    began = time.monotonic()
    answer = await rig.upload(name, files)
    took_s = time.monotonic() - began
    assert answer is not None
    assert answer.status_code in HONEST, answer.text
    rig.proxy.begin()
    found = await rig.assert_whole(name)
    await rig.until_taken(name, files)
    code = "201" if answer.status_code == 201 else f"503 {answer.json()['error']['code']}"
    left = f"{found.orphans} objects, {found.unfinished} unfinished puts"
    return f"{code} after {took_s:.0f} s; left behind: {left}"


def _kill_worker(rig: Rig) -> None:
    os.kill(rig.machine.workers()[0].pid, signal.SIGKILL)


def _told(ended: Counter[str]) -> str:
    return ", ".join(f"{count} of {how}" for how, count in sorted(ended.items()))
