"""SIGTERM to a real gateway under open streams: it says that it leaves, cuts none that ends within the drain,
and ends the others in words, each metered."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import pytest
from pydantic import SecretStr
from sqlalchemy import text

from gateway.config import Settings
from gateway.db import Database
from gateway.serve import environment, run_file
from tests.gateway.conftest import Operator
from tests.gateway.inference.conftest import until
from tests.gateway.inference.upstream import TOKEN, Upstream

NUM_STREAMS = 200
NUM_CUT = 40
PATIENCE_S = 60.0
PROGRAM = """
from gateway.config import Settings
from gateway.serve import serve
from gateway.telemetry import configure_logging

configure_logging()
serve(Settings(), "127.0.0.1", 0, 1)
"""


@dataclass
class Gateway:
    process: Process
    url: str
    session: aiohttp.ClientSession
    tenant: UUID
    key: str

    async def stream(self, begun: Callable[[], None]) -> bytes:
        body = {"model": "base", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        headers = {"authorization": f"Bearer {self.key}"}
        async with self.session.post(f"{self.url}/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            said = await answer.content.readany()
            begun()
            return said + await answer.read()

    async def streams(self, number: int) -> list[asyncio.Task[bytes]]:
        """So many, once each of them has begun."""
        begun: list[None] = []
        tasks = [asyncio.create_task(self.stream(lambda: begun.append(None))) for _ in range(number)]
        await until(lambda: len(begun) == number or any(task.done() for task in tasks), PATIENCE_S)
        assert len(begun) == number
        return tasks


@pytest.fixture
async def running(
    settings: Settings, demo_model_dir: Path, upstream: Upstream, operator: Operator, tmp_path: Path
) -> AsyncIterator[Gateway]:
    upstream.script.hold = asyncio.Event()
    settings = settings.model_copy(
        update={
            "base_model": str(demo_model_dir),
            "engine_token": SecretStr(TOKEN),
            "replicas": upstream.url,
            "replica_running": NUM_STREAMS,
            "drain_notice_s": 3.0,
            "drain_s": PATIENCE_S,
        }
    )
    with (tmp_path / "gateway.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, env={**os.environ, **environment(settings)}, stderr=log
        )
    try:
        await until(lambda: run_file(settings).exists(), PATIENCE_S)
        url = f"http://127.0.0.1:{json.loads(run_file(settings).read_text())['port']}"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            yield await _with_tenant(process, url, session, operator)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _with_tenant(
    process: Process, url: str, session: aiohttp.ClientSession, operator: Operator
) -> Gateway:
    async def post(path: str, body: Any) -> Any:
        async with session.post(f"{url}/api/v1{path}", json=body, headers=operator.headers) as answer:
            assert answer.status == 201, await answer.text()
            return await answer.json()

    tenant = await post("/tenants", {"name": f"tenant-{uuid4().hex[:12]}"})
    key = await post(f"/tenants/{tenant['id']}/keys", {"name": "key"})
    return Gateway(process, url, session, UUID(tenant["id"]), key["secret"])


async def rows(db: Database, tenant: UUID) -> list[tuple[str, int]]:
    """Outcome and billed tokens of each attempt."""
    async with db.system_reader() as session:
        found = await session.execute(
            text("SELECT outcome, billed_completion_tokens FROM usage_ledger WHERE tenant_id = :tenant"),
            {"tenant": tenant},
        )
        return [(outcome, tokens) for outcome, tokens in found]


@asynccontextmanager
async def fresh(gateway: Gateway) -> AsyncIterator[aiohttp.ClientResponse]:
    """What the gateway says of itself over a connection of its own."""
    async with aiohttp.ClientSession() as session, session.get(f"{gateway.url}/readyz") as answer:
        yield answer


async def test_no_stream_is_cut_that_ends_within_the_drain(
    running: Gateway, upstream: Upstream, db: Database
) -> None:
    tasks = await running.streams(NUM_STREAMS)
    running.process.send_signal(signal.SIGTERM)
    status = 200
    while status == 200:
        async with fresh(running) as answer:  # before it stops to listen
            status, ends = answer.status, answer.headers.get("connection")
    assert (status, ends) == (503, "close")
    assert not any(task.done() for task in tasks)
    async with asyncio.timeout(PATIENCE_S):
        with suppress(aiohttp.ClientConnectionError):  # nobody listens any more
            while True:
                async with fresh(running) as answer:
                    assert answer.status == 503
    assert not any(task.done() for task in tasks)
    assert upstream.script.hold is not None
    upstream.script.hold.set()
    said = await asyncio.gather(*tasks)
    assert all(each.endswith(b"data: [DONE]\n\n") and b'"error"' not in each for each in said)
    assert await asyncio.wait_for(running.process.wait(), PATIENCE_S) == 0
    assert await rows(db, running.tenant) == [("finished", 4)] * NUM_STREAMS


async def test_a_second_signal_ends_what_is_open_in_words_and_metered(
    running: Gateway, upstream: Upstream, db: Database
) -> None:
    tasks = await running.streams(NUM_CUT)
    while not all(task.done() for task in tasks):  # the first ones are one: a supervisor may signal twice
        running.process.send_signal(signal.SIGTERM)
        await asyncio.wait(tasks, timeout=0.2)
    for each in await asyncio.gather(*tasks):
        last = json.loads(each.rstrip().rpartition(b"data: ")[2])
        assert last["error"]["code"] == "gateway_stopping"
        assert b"[DONE]" not in each
    assert await asyncio.wait_for(running.process.wait(), PATIENCE_S) == 0
    assert [seen.outcome for seen in upstream.seen.values()] == ["aborted"] * NUM_CUT
    assert await rows(db, running.tenant) == [("failed", 0)] * NUM_CUT
