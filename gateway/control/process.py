"""`motet control`: drains what dead workers left on this machine, and waits to lead. The leader runs its
jobs, each of which may be repeated at any point, side by side: a slow one holds up no other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
from sqlalchemy import text

from adapters.base import BaseSpec
from adapters.store import StoreError, open_store
from gateway.billing.opening import BillingJobs, open_jobs
from gateway.catalog.hints import ReplicaHints
from gateway.catalog.lifecycle import Shelf
from gateway.catalog.spool import Spool
from gateway.config import Settings
from gateway.control.events import Memory
from gateway.control.leader import Leadership, leadership
from gateway.control.metrics import JOB_DONE, JOBS, LEADS
from gateway.control.reconcile import Reconciler
from gateway.control.web import served
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.limits.budget_watch import BudgetWatch
from gateway.limits.redis_store import RedisStore
from gateway.placement.quota import Quota
from gateway.placement.reconciler import Placer
from gateway.proofs.proving import Prover
from gateway.proofs.sweeping import Sweep
from gateway.redis import connect
from gateway.replicas.drivers.motet import ReplicaSession
from gateway.replicas.opening import Fleet, open_fleet
from gateway.replicas.service import purge
from gateway.replicas.tls import replica_tls
from gateway.retention.service import Retention
from gateway.retirement.job import PurgeJob
from gateway.retirement.purge import Purges
from gateway.rollouts.examining import ReplicaExaminer
from gateway.rollouts.stepping import Stepper
from gateway.store_checks.fsck import Fsck
from gateway.store_checks.lost import Lost
from gateway.store_checks.service import CheckJob
from gateway.tenants.epochs import Epochs
from gateway.tenants.purge_parts import parts_of
from gateway.tenants.purging import Purger
from gateway.upgrades.enlisting import Enlisting
from gateway.uploads.sweeping import delete_expired
from gateway.usage import repository
from gateway.usage.drain import drain_dead
from gateway.usage.watermark import forget_drained, give_up_lost
from gateway.webhooks.delivery import Deliveries
from gateway.webhooks.opening import open_deliveries
from gateway.webhooks.outbox import publish

log = structlog.get_logger(__name__)

ROUND_S = 3.0
BUDGETS_S = 10.0
CHARGING_SHARE = 0.1
"""Most of the time that charging takes: busy quarters of an hour are summed again less often."""
PAUSE_AFTER_FAILURE_S = 2.0
RETRY_S = 30.0
ROLLOUTS_S = 1.0
PURGE_S = 10.0
UPLOADS_S = 60.0
ENLIST_S = 15.0
HOURLY_S = 3_600.0
DAILY_S = 24 * HOURLY_S
COARSEN_S = 600.0
PARTITIONS_AHEAD = 2
REPLICA_CONNECTIONS = 32
"""To each: a journal's reader, a look at its state, and proofs with their prompts."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something done every `every_s` seconds; `work` gives how many things it did."""

    name: str
    every_s: float
    work: Callable[[], Awaitable[int]]


async def run_control(settings: Settings) -> None:
    """Runs until cancelled. Loses nothing when it is killed: what was begun is done again. Raises
    `CanNotListen`."""
    settings.journal_dir.mkdir(parents=True, exist_ok=True)
    db = Database(settings.database_url, settings.database_system_url)
    try:
        async with (
            ReplicaSession(
                connect_timeout_s=settings.connect_timeout_s,
                max_connections=REPLICA_CONNECTIONS,
                tls=replica_tls(settings),
            ) as session,
            served(settings),
            _repeated([_drain(db, settings)]),
        ):
            await _lead_whenever_possible(db, settings, session)
    finally:
        await db.close()


def _drain(db: Database, settings: Settings) -> Job:
    """Every control process does this, for a journal can be drained only where its disk is."""

    async def drain() -> int:
        added = await drain_dead(db, settings.journal_dir)
        await forget_drained(db, settings.journal_dir)
        return added

    return Job("drain_dead", ROUND_S, drain)


async def _lead_whenever_possible(db: Database, settings: Settings, session: ReplicaSession) -> None:
    deliveries = open_deliveries(settings, db)
    base = BaseSpec.from_dir(Path(settings.base_model), settings.base_name)
    base_id = base.base_id
    fleet = open_fleet(settings, db, base, session, keep_removed=True)
    hints = ReplicaHints(fleet.registry)
    store = open_store(settings.store_url)
    shelf = Shelf(db, store, hints)
    redis = connect(settings.redis_url, max_connections=8)
    spools = [
        Spool(settings.home / folder, prefix)
        for folder, prefix in (("exports", "export-"), ("downloads", "download-"), ("uploads", "upload-"))
    ]
    fsck = Fsck(db, Shelf(db, store, hints), Lost(db, Epochs(redis)), spools)
    purges = Purges(db, store, lambda: fleet.roster.drivers_by_url, base_id)
    purge_job = PurgeJob(db, purges, lambda: fleet.roster.drivers_by_url, fleet.roster.refresh)
    purger = Purger(db, parts_of(db, redis, store, purges))
    reservations = RedisStore(redis, lease_s=settings.lease_s)
    enlisting = Enlisting(db, base_id, partial(_served_digests, fleet))
    look = _looking(fleet)
    sweep = Sweep(db, Prover(db, Epochs(redis), shelf, fleet.registry, base_id), look)
    stepper = Stepper(db, Epochs(redis), hints, ReplicaExaminer(fleet.registry, look))
    try:
        await asyncio.to_thread(_sweep, spools)
        while True:
            reconciler = Reconciler(
                db,
                (),
                base_id=base_id,
                journal_dir=settings.journal_dir,
                open_requests=reservations.held,
            )
            try:
                async with leadership(db) as leader:
                    jobs = [*_jobs(db), *_webhook_jobs(deliveries)]
                    jobs += [*_billing_jobs(open_jobs(settings, db)), *_memory_jobs(Memory(settings, db))]
                    jobs += [*_replica_jobs(db, base_id, fleet, reconciler), *_tenancy_jobs(db, purger)]
                    jobs += _artefact_jobs(db, fsck, purge_job)
                    jobs.append(_budgets(BudgetWatch(db, reservations, publish)))
                    jobs.append(Job("prove", ROUND_S, sweep.run_once))
                    jobs.append(Job("step_rollouts", ROLLOUTS_S, stepper.run_once))
                    jobs.append(_placing(settings, db, base_id, fleet))
                    jobs.append(Job("prove_on_weights", ENLIST_S, enlisting.run_once))
                    await _lead(leader, jobs)
            except Unavailable as error:
                log.warning("control_stopped_leading", reason=error.message)
                await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
            finally:
                await sweep.close()
    finally:
        await stepper.close()
        await hints.close()
        await redis.aclose()


def _sweep(spools: Sequence[Spool]) -> None:
    """What killed processes of this machine left."""
    for spool in spools:
        if left := spool.sweep():
            log.info("spool_swept", folder=str(spool.root), directories=len(left))


def _artefact_jobs(db: Database, fsck: Fsck, purge: PurgeJob) -> list[Job]:
    return [
        Job("remove_orphans", HOURLY_S, fsck.remove_orphans),
        Job("find_missing", DAILY_S, fsck.find_missing),
        Job("check_store", ROUND_S, CheckJob(db, fsck).run_once),
        Job("purge_artefacts", ROUND_S, purge.run_once),
        Job("forget_purges", HOURLY_S, purge.forget),
    ]


def _tenancy_jobs(db: Database, purger: Purger) -> list[Job]:
    return [
        Job("purge_tenants", PURGE_S, purger.run_once),
        Job("retention", HOURLY_S, Retention(db).sweep),
    ]


def _jobs(db: Database) -> list[Job]:
    return [
        Job("partitions", HOURLY_S, lambda: ensure_partitions(db)),
        Job("give_up_uncounted", HOURLY_S, lambda: _give_up(db)),
        Job("expire_uploads", UPLOADS_S, lambda: delete_expired(db)),
    ]


def _placing(settings: Settings, db: Database, base_id: str, fleet: Fleet) -> Job:
    quota = Quota(settings.tenant_placed_slots, settings.tenant_placed_bytes)
    placer = Placer(db, fleet.registry, base_id, quota)

    async def place() -> int:
        await placer.run_once()
        return 0  # calls that renew what is kept are no news

    return Job("place", ROUND_S, place)


def _replica_jobs(db: Database, base_id: str, fleet: Fleet, reconciler: Reconciler) -> list[Job]:
    async def reconcile() -> int:
        await fleet.roster.refresh()
        reconciler.read_from(fleet.roster.drivers)
        return await reconciler.run_once()

    async def forget() -> int:
        await fleet.roster.refresh()  # after a long stop, what is listed still is
        return await purge(db, base_id)

    return [Job("reconcile", ROUND_S, reconcile), Job("forget_replicas", HOURLY_S, forget)]


def _billing_jobs(billing: BillingJobs) -> list[Job]:
    return [
        Job("charge", ROUND_S, _sparing(billing.charging.run_once, CHARGING_SHARE)),
        Job("close_periods", HOURLY_S, billing.closing.run_once),
        Job("make_exports", ROUND_S, billing.maker.run_once),
    ]


def _memory_jobs(memory: Memory) -> list[Job]:
    return [
        Job("request_events", HOURLY_S, memory.keep_events),
        Job("request_minutes", COARSEN_S, memory.coarsen),
    ]


def _webhook_jobs(deliveries: Deliveries) -> list[Job]:
    return [
        Job("deliver_webhooks", 1.0, deliveries.run_once),
        Job("tidy_webhooks", HOURLY_S, deliveries.tidy),
    ]


async def _served_digests(fleet: Fleet) -> frozenset[str]:
    await _looking(fleet)()
    return fleet.registry.digests


def _looking(fleet: Fleet) -> Callable[[], Awaitable[int]]:
    """Brings the picture of the replicas up to date, and says how many are well."""

    async def look() -> int:
        await fleet.roster.refresh()
        await fleet.registry.poll_once()
        return fleet.registry.num_healthy

    return look


def _budgets(watch: BudgetWatch) -> Job:
    return Job("watch_budgets", BUDGETS_S, _sparing(watch.run_once, CHARGING_SHARE))


def _sparing(
    work: Callable[[], Awaitable[int]], share: float, clock: Callable[[], float] = time.monotonic
) -> Callable[[], Awaitable[int]]:
    """The same work, which then rests until it has taken no more than its share of the time."""
    free_at = 0.0

    async def run() -> int:
        nonlocal free_at
        began = clock()
        if began < free_at:
            return 0
        done = await work()
        ended = clock()
        free_at = ended + (ended - began) * (1 / share - 1)
        return done

    return run


async def _lead(leader: Leadership, jobs: Sequence[Job]) -> None:
    """Until the lock is lost: raises `Unavailable` then."""
    LEADS.set(1)
    try:
        async with _repeated(jobs):
            while True:
                await leader.confirm()
                await asyncio.sleep(ROUND_S)
    finally:
        LEADS.set(0)


@asynccontextmanager
async def _repeated(jobs: Sequence[Job]) -> AsyncIterator[None]:
    """Each job over and over, while the block runs."""
    tasks = [asyncio.create_task(_repeat(job), name=job.name) for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _repeat(job: Job) -> None:
    while True:
        did = await _run(job)
        await asyncio.sleep(job.every_s if did else min(job.every_s, RETRY_S))


async def _run(job: Job) -> bool:
    """Whether it ended well; one that failed is tried again before long."""
    try:
        done = await job.work()
    except (Unavailable, StoreError) as error:
        JOBS.labels(job.name, "unavailable").inc()
        log.warning("job_failed", job=job.name, reason=str(error))
    except Exception:
        JOBS.labels(job.name, "failed").inc()
        log.exception("job_failed", job=job.name)
    else:
        JOBS.labels(job.name, "done").inc()
        JOB_DONE.labels(job.name).set_to_current_time()
        if done:
            log.info("job_done", job=job.name, num_items=done)
        return True
    return False


async def ensure_partitions(db: Database) -> int:
    async with db.system_session() as session:
        made = await session.scalar(
            text("SELECT motet_ensure_partitions(:ahead)"), {"ahead": PARTITIONS_AHEAD}
        )
        return int(made or 0)


async def _give_up(db: Database) -> int:
    async with db.system_session() as session:
        return await repository.give_up_uncounted(session) + await give_up_lost(session)
