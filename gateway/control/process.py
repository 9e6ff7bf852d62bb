"""`motet control`: waits to lead, then runs its jobs, each of which may be repeated at any point."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog
from prometheus_client import Counter
from sqlalchemy import text

from adapters.base import BaseSpec
from gateway.config import Settings
from gateway.control.leader import Leadership, leadership
from gateway.control.reconcile import Reconciler
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.inference.serving import replica_urls
from gateway.replicas.drivers.motet import MotetDriver, make_session
from gateway.usage import repository
from gateway.usage.drain import drain_dead

log = structlog.get_logger(__name__)

ROUND_S = 3.0
PAUSE_AFTER_FAILURE_S = 2.0
PARTITIONS_S = 3600.0
PARTITIONS_AHEAD = 2
GIVE_UP_S = 3600.0

JOBS = Counter("motet_control_jobs_total", "Jobs that the leader ran.", ["job", "outcome"])


@dataclass(slots=True)
class Job:
    """Something the leader does every `every_s` seconds."""

    name: str
    every_s: float
    work: Callable[[], Awaitable[int]]
    due_at: float = 0.0


async def run_control(settings: Settings) -> None:
    """Runs until cancelled. Loses nothing when it is killed: what was begun is done again."""
    db = Database(settings.database_url, settings.database_system_url)
    base_id = BaseSpec.from_dir(Path(settings.base_model), settings.base_name).base_id
    settings.journal_dir.mkdir(parents=True, exist_ok=True)
    try:
        async with make_session(connect_timeout_s=settings.connect_timeout_s, max_connections=4) as session:
            token = settings.engine_token.get_secret_value()
            drivers = [MotetDriver(session, url, token) for url in replica_urls(settings)]
            while True:
                reconciler = Reconciler(db, drivers, base_id=base_id, journal_dir=settings.journal_dir)
                try:
                    async with leadership(db) as leader:
                        await _lead(leader, _jobs(db, settings, reconciler))
                except Unavailable as error:
                    log.warning("control_stopped_leading", reason=error.message)
                    await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
    finally:
        await db.close()


def _jobs(db: Database, settings: Settings, reconciler: Reconciler) -> list[Job]:
    """Dead workers' journals come first: what is in them need not be taken from an engine's."""
    return [
        Job("partitions", PARTITIONS_S, lambda: ensure_partitions(db)),
        Job("drain_dead", ROUND_S, lambda: drain_dead(db, settings.journal_dir)),
        Job("reconcile", ROUND_S, reconciler.run_once),
        Job("give_up_uncounted", GIVE_UP_S, lambda: _give_up(db)),
    ]


async def _lead(leader: Leadership, jobs: list[Job]) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        await leader.confirm()
        for job in jobs:
            if clock() >= job.due_at:
                await _run(job)
                job.due_at = clock() + job.every_s
        await asyncio.sleep(max(0.05, min(job.due_at for job in jobs) - clock()))


async def _run(job: Job) -> None:
    """A job that fails is tried again next time, and never stops the others."""
    try:
        done = await job.work()
    except Unavailable as error:
        JOBS.labels(job.name, "unavailable").inc()
        log.warning("job_failed", job=job.name, reason=error.message)
    except Exception:
        JOBS.labels(job.name, "failed").inc()
        log.exception("job_failed", job=job.name)
    else:
        JOBS.labels(job.name, "done").inc()
        if done:
            log.info("job_done", job=job.name, num_items=done)


async def ensure_partitions(db: Database) -> int:
    async with db.system_session() as session:
        made = await session.scalar(
            text("SELECT motet_ensure_partitions(:ahead)"), {"ahead": PARTITIONS_AHEAD}
        )
        return int(made or 0)


async def _give_up(db: Database) -> int:
    async with db.system_session() as session:
        return await repository.give_up_uncounted(session)
