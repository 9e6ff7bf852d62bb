"""All of a worker that serves inference: built, run in the background, and closed in one place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from redis.asyncio import Redis

from adapters.base import BaseSpec
from adapters.prompt import PromptEncoder
from gateway.config import Settings
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.inference.counting import Counter
from gateway.inference.dispatch import Dispatcher, Patience
from gateway.inference.ending import drained
from gateway.inference.open_replays import ReplayNeeds, make_replays
from gateway.inference.probe import Probe
from gateway.inference.replays import Replays
from gateway.inference.service import BodyLimits, KeyReader, Parts, Resolver, Walk
from gateway.limits.limiter import Limiter
from gateway.limits.spending import ChargedSpending
from gateway.queueing.bounds import QueueLimits
from gateway.queueing.exchange import POOL, RedisExchange
from gateway.queueing.fair_queue import FairQueue
from gateway.replicas.drivers.motet import MotetDriver, make_session
from gateway.replicas.registry import Registry, Replica
from gateway.replicas.retry_budget import RetryBudget
from gateway.usage.drain import drain_own, run_drain
from gateway.usage.journal import Journal

log = structlog.get_logger(__name__)

AGAIN_S = 1.0
"""Pause before a background task that failed begins again."""


@dataclass(frozen=True, slots=True)
class Serving:
    """One per worker."""

    walk: Walk
    probe: Probe
    registry: Registry
    queue: FairQueue
    limiter: Limiter
    counter: Counter


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
            make_session(
                connect_timeout_s=settings.connect_timeout_s, max_connections=settings.replica_running * 2
            )
        )
        token = settings.engine_token.get_secret_value()
        replicas = [Replica(url, MotetDriver(session, url, token)) for url in replica_urls(settings)]
        pool = f"{POOL}-{needs.base.base_id[:16]}"  # each base has replicas of its own
        queue = FairQueue(
            queue_limits(settings),
            capacity=capacity_of(settings, 1),
            weights=settings.class_weights,
            pool=pool,
        )
        registry = Registry(
            replicas,
            lambda healthy: queue.set_capacity(capacity_of(settings, healthy)),
            running=settings.replica_running,
        )
        queue.share(
            RedisExchange(needs.redis, pool=pool),
            workers=settings.workers,
            loads=registry.loads,
            heard=registry.hear_loads,
        )
        spending = ChargedSpending(needs.db)
        limiter = Limiter(
            needs.redis, lease_s=settings.lease_s, spending=spending, workers=lambda: queue.workers
        )
        await spending.refresh()
        journal = Journal(settings.journal_dir)
        stack.push_async_callback(_close_journal, needs.db, journal)
        replays = make_replays(
            ReplayNeeds(
                settings=settings,
                db=needs.db,
                redis=needs.redis,
                registry=registry,
                limiter=limiter,
                journal=journal,
            )
        )
        parts = _parts(needs, queue, replays)
        walk = Walk(parts)
        await registry.poll_once()
        run_queue, drain = queue.run, lambda: run_drain(needs.db, journal)
        for work in (registry.run, limiter.run, spending.run, replays.run, run_queue, drain):
            stack.push_async_callback(_stop, asyncio.create_task(_for_ever(work)))
        yield Serving(walk, Probe(walk, needs.base), registry, queue, limiter, parts.counter)


def _parts(needs: Needs, queue: FairQueue, replays: Replays) -> Parts:
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
        replays=replays,
        body=BodyLimits(settings.max_body_bytes, settings.body_timeout_s),
    )


def replica_urls(settings: Settings) -> list[str]:
    return [url.strip() for url in settings.replicas.split(",") if url.strip()]


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


def capacity_of(settings: Settings, num_healthy: int) -> int:
    """The running limits of all healthy replicas, which all workers share; at least one, so that a lone
    request can find out what is wrong."""
    return max(1, settings.replica_running * num_healthy)


async def _for_ever(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
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
