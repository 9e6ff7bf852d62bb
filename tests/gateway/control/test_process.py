"""`motet control` as a process runs it: who leads, jobs side by side, and what it says of itself."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from pydantic import SecretStr
from sqlalchemy import select

from deploy.local.services import free_port
from gateway.config import Settings
from gateway.control import CanNotListen, run_control
from gateway.control.leader import leadership
from gateway.control.process import Job, _repeated, _sparing
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.models import UsageLedger
from gateway.principal import TenantId
from gateway.usage.journal import Journal
from tests.gateway.inference.conftest import until
from tests.gateway.usage.test_journal import make_event


@pytest.fixture
def ready(settings: Settings, demo_model_dir: Path) -> Settings:
    return settings.model_copy(update={"base_model": str(demo_model_dir), "control_port": free_port()})


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[str]:
    """Its URL, while it runs."""
    task = asyncio.create_task(run_control(settings))
    url = f"http://127.0.0.1:{settings.control_port}"
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(10):
            while True:
                assert not task.done() or task.result()
                with suppress(aiohttp.ClientError):
                    async with session.get(f"{url}/healthz") as answer:
                        assert answer.status == 200
                        break
                await asyncio.sleep(0.02)
        yield url
    finally:
        task.cancel()
        await asyncio.wait({task})


async def metrics(url: str, token: str | None = None) -> tuple[int, dict[str, float]]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics", headers=headers) as answer:
        lines = [line.rpartition(" ") for line in (await answer.text()).splitlines() if line[:1] != "#"]
        return answer.status, {name: float(value) for name, _, value in lines}


async def test_the_leader_says_so_and_which_jobs_it_did(ready: Settings) -> None:
    wanted = {
        f'motet_control_job_done_timestamp_seconds{{job="{name}"}}'
        for name in (
            "partitions",
            "reconcile",
            "give_up_uncounted",
            "remove_orphans",
            "find_missing",
            "drain_dead",
            "charge",
            "close_periods",
            "make_exports",
        )
    }
    async with running(ready) as url, asyncio.timeout(60):
        while True:
            status, found = await metrics(url)
            assert status == 200
            if wanted <= set(found) and found["motet_control_leads"] == 1:
                break
            await asyncio.sleep(0.05)
    assert found["motet_control_unsettled_lines"] == 0


async def test_one_that_does_not_lead_drains_its_own_disk_all_the_same(
    ready: Settings, db: Database, tenant: TenantId
) -> None:
    journal = Journal(ready.journal_dir)
    event = make_event(tenant_id=tenant)
    await journal.append(event)
    await journal.close()
    async with asyncio.timeout(60), leadership(db), running(ready):
        await until(lambda: not list(ready.journal_dir.glob("*.jsonl")), 10)
        async with db.system_reader() as session:
            query = select(UsageLedger.outcome).where(UsageLedger.request_id == event.request_id)
            assert (await session.scalars(query)).all() == ["finished"]


async def test_the_metrics_token_is_asked_for(ready: Settings) -> None:
    secret = ready.model_copy(update={"metrics_token": SecretStr("scrape-me")})
    async with running(secret) as url:
        assert (await metrics(url))[0] == 401
        assert (await metrics(url, "wrong"))[0] == 401
        assert (await metrics(url, "scrape-me"))[0] == 200


async def test_a_port_in_use_is_one_line(ready: Settings) -> None:
    said = f"can't listen on 127.0.0.1:{ready.control_port}: "
    with (
        socket.create_server(("127.0.0.1", ready.control_port)),
        pytest.raises(CanNotListen, match=said),
    ):
        await run_control(ready)


async def test_a_slow_or_failing_job_holds_up_no_other() -> None:
    did: list[str] = []

    async def slow() -> int:
        await asyncio.Event().wait()
        return 0

    async def failing() -> int:
        did.append("failing")
        raise Unavailable("away") if len(did) % 2 else RuntimeError("a fault")

    async def quick() -> int:
        did.append("quick")
        return 1

    jobs = [Job("slow", 0.01, slow), Job("failing", 0.01, failing), Job("quick", 0.01, quick)]
    async with _repeated(jobs):
        await until(lambda: did.count("quick") >= 3 and did.count("failing") >= 3)
    settled = len(did)
    await asyncio.sleep(0.05)
    assert len(did) == settled  # the block's end is theirs


async def test_work_that_is_sparing_rests_nine_times_as_long_as_it_took() -> None:
    now = [100.0]

    async def work() -> int:
        now[0] += 2.0
        return 1

    run = _sparing(work, 0.1, clock=lambda: now[0])
    assert await run() == 1
    for seconds, did in ((17.9, 0), (0.2, 1)):
        now[0] += seconds
        assert await run() == did
