"""All of a worker that serves inference: built, run in the background, and closed in one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from litestar.types import Scope
from redis.asyncio import Redis

from adapters.base import BaseSpec
from adapters.prompt import PromptEncoder
from gateway.config import Settings
from gateway.db import Database
from gateway.envelope import began_of
from gateway.errors import ApiError, Unavailable
from gateway.events.recorder import Recorder
from gateway.events.trace import Step, Trace
from gateway.events.writer import Writer
from gateway.ids import uuid7
from gateway.inference.client import ClientPatience
from gateway.inference.counting import Counter
from gateway.inference.dispatch import Dispatcher, Patience
from gateway.inference.ending import drained
from gateway.inference.open_replays import ReplayNeeds, make_replays
from gateway.inference.open_requests import OpenRequests
from gateway.inference.probe import Probe
from gateway.inference.replays import Replays
from gateway.inference.service import BodyLimits, KeyReader, Parts, Resolver, Walk
from gateway.limits.limiter import Limiter
from gateway.limits.spending import ChargedSpending
from gateway.principal import Principal
from gateway.queueing.bounds import QueueLimits
from gateway.queueing.exchange import POOL, RedisExchange
from gateway.queueing.fair_queue import FairQueue
from gateway.receipts.opening import open_issuer
from gateway.replicas.drivers.motet import ReplicaSession
from gateway.replicas.opening import Fleet, open_fleet
from gateway.replicas.registry import Registry
from gateway.replicas.retry_budget import RetryBudget
from gateway.replicas.tls import replica_tls
from gateway.traffic.tally import Tally
from gateway.usage.drain import drain_own, run_drain
from gateway.usage.journal import Journal
from gateway.usage.watermark import WorkerMark

log = structlog.get_logger(__name__)

Work = Callable[[], Coroutine[Any, Any, None]]

AGAIN_S = 1.0
"""Pause before a background task that failed begins again."""


@dataclass(frozen=True, slots=True)
class Serving:
    """One per worker."""

    walk: Walk
    probe: Probe
    fleet: Fleet
    queue: FairQueue
    open_requests: OpenRequests
    recorder: Recorder
    limiter: Limiter
    counter: Counter

    def turned_away(self, scope: Scope, principal: Principal, error: ApiError) -> None:
        """A request to this worker's walk that the door did not let in, though its key is good: for its
        scope, its address, or want of room. It is remembered like all others, within the same bounds."""
        trace = Trace(began=began_of(scope))
        trace.error, trace.reached = error, Step.AUTH
        self.recorder.note(scope, principal, trace)

    @property
    def registry(self) -> Registry:
        return self.fleet.registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What serving is built on; owned by the application."""

    settings: Settings
    db: Database
    redis: Redis
    keys: KeyReader
    catalog: Resolver
    base: BaseSpec


@asynccontextmanager
async def open_serving(needs: Needs) -> AsyncIterator[Serving]:
    """Starts polling, renewing and draining; on leaving, ends what still runs and empties the journal."""
    settings = needs.settings
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            ReplicaSession(
                connect_timeout_s=settings.connect_timeout_s,
                max_connections=settings.replica_running * 2,
                tls=replica_tls(settings),
            )
        )
        pool = f"{POOL}-{needs.base.base_id[:16]}"  # each base has replicas of its own
        queue = FairQueue(
            queue_limits(settings),
            capacity=capacity_of(settings, 1),
            weights=settings.class_weights,
            pool=pool,
        )
        fleet = _fleet(needs, session, queue, pool)
        registry = fleet.registry
        recorder = Recorder(Tally(uuid7()), most_a_minute=events_a_minute(settings))
        writer = Writer(needs.db, recorder)
        stack.push_async_callback(writer.close)  # once all that still runs has ended
        spending = ChargedSpending(needs.db)
        limiter = Limiter(
            needs.redis, lease_s=settings.lease_s, spending=spending, workers=lambda: queue.workers
        )
        await spending.refresh()
        journal = Journal(settings.journal_dir)
        stack.push_async_callback(_close_journal, needs.db, journal)
        receipts = await open_issuer(settings, needs.db)
        replays = make_replays(
            ReplayNeeds(
                settings=settings,
                db=needs.db,
                redis=needs.redis,
                registry=registry,
                limiter=limiter,
                journal=journal,
                receipts=receipts,
            )
        )
        parts = _parts(needs, queue, replays, recorder)
        walk = Walk(parts)
        await _know(fleet)
        run_queue, drain = queue.run, lambda: run_drain(needs.db, journal)
        prices = partial(receipts.prices.run, needs.db)
        runs: list[Work] = [registry.run, fleet.roster.run, limiter.run, spending.run, replays.run]
        runs += [writer.run, run_queue, drain, prices]
        for work in runs:
            stack.push_async_callback(_stop, asyncio.create_task(_for_ever(work)))
        opened = OpenRequests(settings.open_requests, settings.open_requests_tenant)
        probe = Probe(walk, needs.base)
        yield Serving(walk, probe, fleet, queue, opened, recorder, limiter, parts.counter)


def _fleet(needs: Needs, session: ReplicaSession, queue: FairQueue, pool: str) -> Fleet:
    """The replicas, whose number and loads the queue hears of."""
    settings = needs.settings
    fleet = open_fleet(
        settings,
        needs.db,
        needs.base,
        session,
        lambda healthy: queue.set_capacity(capacity_of(settings, healthy)),
    )
    queue.share(
        RedisExchange(needs.redis, pool=pool),
        workers=settings.workers,
        loads=fleet.registry.loads,
        heard=fleet.registry.hear_loads,
    )
    return fleet


def _parts(needs: Needs, queue: FairQueue, replays: Replays, recorder: Recorder) -> Parts:
    settings, shared = needs.settings, replays.parts
    patience = Patience(
        queue_wait_s=settings.queue_wait_s,
        first_byte_s=settings.first_byte_timeout_s,
        idle_s=settings.idle_timeout_s,
        max_attempts=settings.max_attempts,
    )
    return Parts(
        keys=needs.keys,
        catalog=needs.catalog,
        limiter=shared.limiter,
        counter=Counter(PromptEncoder(settings.base_model), needs.base.max_model_len, needs.base.vocab_size),
        dispatcher=Dispatcher(queue, shared.registry, patience, RetryBudget(settings.retry_share)),
        registry=shared.registry,
        journal=shared.journal,
        receipts=shared.receipts,
        replays=replays,
        recorder=recorder,
        body=BodyLimits(settings.max_body_bytes, settings.body_timeout_s),
        client=ClientPatience(settings.write_timeout_s, settings.stream_keep_alive_s),
    )


def queue_limits(settings: Settings) -> QueueLimits:
    return QueueLimits(
        max_items=settings.queue_items,
        max_items_tenant=settings.queue_items_tenant,
        max_tokens=settings.queue_tokens,
        max_tokens_tenant=settings.queue_tokens_tenant,
        max_bytes=settings.queue_bytes,
        max_bytes_tenant=settings.queue_bytes_tenant,
        max_wait_s=settings.queue_wait_s,
        aging_s=settings.queue_aging_s,
    )


def events_a_minute(settings: Settings) -> int:
    """One worker's part of what is kept of a tenant."""
    return max(1, settings.request_events_minute // settings.workers)


def capacity_of(settings: Settings, num_healthy: int) -> int:
    """The running limits of all healthy replicas, which all workers share; at least one, so that a lone
    request can find out what is wrong."""
    return max(1, settings.replica_running * num_healthy)


async def _know(fleet: Fleet) -> None:
    """The first look: who is registered, who is ready, and whether they hold the right weights."""
    for look in (fleet.roster.refresh, fleet.registry.poll_once, fleet.roster.refresh):
        try:
            await look()
        except Unavailable as error:  # those that are listed are known without it
            log.warning("roster_not_read", reason=error.message)


async def _for_ever(work: Work) -> None:
    """These never end by themselves: a fault in one is said, and costs a pause only. A worker that stopped to
    poll, renew or drain would look well and answer wrongly."""
    while True:
        try:
            await work()
        except Exception:
            log.critical("background_task_failed", exc_info=True)
        await asyncio.sleep(AGAIN_S)


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def _close_journal(db: Database, journal: Journal) -> None:
    """What can't be drained now, control drains later."""
    await drained()
    try:
        await drain_own(db, journal)
    except (Unavailable, OSError) as error:
        log.warning("ledger_left_to_control", reason=str(error))
    finally:
        await journal.close()
    try:
        await WorkerMark(db, journal).leave()
    except Unavailable as error:
        log.warning("mark_left_to_control", reason=str(error))
