"""`motet up` over a real S3 server behind a proxy, what a client does to it, and what must be true of it
after each fault: for the acceptance runs over stores and proofs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from adapters.base import BaseSpec
from adapters.store import ObjectStore, open_store
from deploy.bench.random_adapters import Recipe, write_adapter
from gateway.catalog.lifecycle import Shelf
from gateway.db import Database
from gateway.store_checks.found import Found
from gateway.store_checks.fsck import Fsck
from tests.churn import PARTS
from tests.machine import Machine
from tests.running_platform import RunningPlatform
from tests.s3_proxy import Proxy, proxied
from tests.s3_server import BUCKET, RunningS3

READY_S = 120.0
HEALS_S = 90.0
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
    owner: str  # the only tenant
    key: str
    seed: int = 0

    @property
    def client(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(base_url=self.machine.base_url, headers=headers, timeout=300)

    def parts(self, std: float = 0.05) -> dict[str, bytes]:
        """Of an adapter that was never uploaded. `std`: of its values."""
        self.seed += 1
        recipe = Recipe(10_000 + self.seed, rank=RANK, std=std)
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


@asynccontextmanager
async def store_rig(
    demo_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> AsyncIterator[Rig]:
    """`arguments`: of `motet up`."""
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
    with ended(s3.kill), proxied(s3.server) as (proxy, seen):
        environment = {
            "MOTET_STORE_URL": f"s3://{BUCKET}/motet?endpoint={seen.endpoint}",
            "MOTET_ENGINE_PROOF_NICE": "0",  # a machine that others use leaves nothing to who waits politely
            **keys,
        }
        arguments = ("--no-demo", *arguments)
        platform = RunningPlatform(tmp_path / "home", demo_model_dir, *arguments, environment=environment)
        platform.home.mkdir()
        with ended(platform.stop):
            await asyncio.to_thread(platform.start)
            machine = Machine(platform)
            url = str(machine.demo["database_url"])
            db = Database(url, url)
            base = BaseSpec.from_dir(demo_model_dir, machine.demo["base_model"])
            store = open_store(f"s3://{BUCKET}/motet?endpoint={s3.server.endpoint}")
            owner, key = _tenant(machine)
            yield Rig(machine, s3, proxy, store, db, tmp_path / "adapters", base, owner, key)
            await db.close()


def _tenant(machine: Machine) -> tuple[str, str]:
    """A tenant and its key."""
    headers = {"authorization": f"Bearer {machine.demo['admin']['token']}"}
    with httpx.Client(base_url=machine.base_url, headers=headers, timeout=60) as admin:
        owner = admin.post("/api/v1/tenants", json={"name": "stored"}).json()["id"]
        wanted = {"name": "all", "scopes": ["inference", "adapters:read", "adapters:write"]}
        made = admin.post(f"/api/v1/tenants/{owner}/keys", json=wanted)
        assert made.status_code == 201, made.text
        return str(owner), str(made.json()["secret"])


@contextmanager
def ended(end: Callable[[], object]) -> Iterator[None]:
    """Also when the block failed."""
    try:
        yield
    finally:
        end()
