"""Sends what the outbox holds: jobs of the leader.

At least once: a delivery is taken for a while, sent, and its outcome recorded; whoever dies between leaves
it to the next round, under the same `webhook-id`. Tenants take turns, and each has a share of the places
only, so that endpoints which answer slowly or never are their own tenant's trouble.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog

from gateway.audit.service import SYSTEM, Change, record
from gateway.db import Database
from gateway.models import WebhookEvent
from gateway.principal import TenantId
from gateway.webhooks import repository
from gateway.webhooks.metrics import DISABLED, TRIES
from gateway.webhooks.outbox import KEPT_DAYS
from gateway.webhooks.repository import Job
from gateway.webhooks.schedule import DISABLE_AFTER, GIVE_UP_AFTER, pause_s
from gateway.webhooks.sealed import CanNotOpen, Sealer
from gateway.webhooks.sender import Sender, Tried
from gateway.webhooks.signing import signed_headers

log = structlog.get_logger(__name__)

MAX_SENDING: Final = 64
MAX_SENDING_TENANT: Final = 4
SPREAD: Final = 100
LEASE: Final = timedelta(seconds=60)
LOOK_AGAIN_S: Final = 1.0
LOG_KEPT: Final = timedelta(days=30)
AGENT: Final = "Motet-Webhooks/1"


class Deliveries:
    """`run_once` and `tidy` raise `Unavailable`; each may be repeated at any point."""

    def __init__(
        self, db: Database, sender: Sender, sealer: Sealer, draw: random.Random | None = None
    ) -> None:
        self._db = db
        self._sender = sender
        self._sealer = sealer
        self._draw = draw or random.Random()  # noqa: S311  spreads retries, keeps no secret
        self._sending: dict[asyncio.Task[None], TenantId] = {}

    async def run_once(self) -> int:
        """Until nothing is due; gives the number of tries."""
        tries = 0
        try:
            while True:
                await self._spread()
                await self._begin()
                if not self._sending:
                    return tries
                done, _ = await asyncio.wait(
                    self._sending, timeout=LOOK_AGAIN_S, return_when=asyncio.FIRST_COMPLETED
                )
                tries += len(done)
                for task in done:
                    del self._sending[task]
                for task in done:
                    task.result()
        finally:
            await self._stop()

    async def tidy(self) -> int:
        """Forgets what is old, and seals again what a former key sealed."""
        done = 0
        for forget, older in (
            (repository.forget_deliveries, LOG_KEPT),
            (repository.forget_events, timedelta(days=KEPT_DAYS)),
        ):
            while True:
                async with self._db.system_session() as session:
                    forgotten = await forget(session, older)
                done += forgotten
                if forgotten < repository.BATCH:
                    break
        return done + await self._reseal()

    async def _spread(self) -> None:
        while True:
            async with self._db.system_session() as session:
                events = await repository.unspread(session, SPREAD)
                for event in events:
                    await repository.spread(session, event)
            if len(events) < SPREAD:
                return

    async def _begin(self) -> None:
        free = MAX_SENDING - len(self._sending)
        if free <= 0:
            return
        held = Counter(self._sending.values())
        wanted: list[UUID] = []
        async with self._db.system_session() as session:
            for delivery, tenant in await repository.due(session, MAX_SENDING_TENANT, MAX_SENDING):
                if held[tenant] < MAX_SENDING_TENANT and len(wanted) < free:
                    held[tenant] += 1
                    wanted.append(delivery)
            jobs = await repository.take(session, wanted, LEASE) if wanted else []
        for job in jobs:
            task = asyncio.create_task(self._deliver(job), name="webhook-delivery")
            self._sending[task] = TenantId(job.delivery.tenant_id)

    async def _stop(self) -> None:
        for task in self._sending:
            task.cancel()
        if self._sending:
            await asyncio.wait(self._sending)
        self._sending.clear()

    async def _deliver(self, job: Job) -> None:
        try:
            tried = await self._try(job)
        except Exception:  # one that can't be sent must not hold up the others
            log.exception("webhook_failed", endpoint=str(job.endpoint.id), delivery=str(job.delivery.id))
            tried = Tried(None, "a fault of ours", 0)
        TRIES.labels("delivered" if tried.delivered else "failed").inc()
        log.info(
            "webhook_tried",
            endpoint=str(job.endpoint.id),
            host=job.endpoint.host,
            kind=job.event.kind,
            status=tried.status,
            error=tried.error,
            ms=tried.took_ms,
        )
        await self._record(job, tried)

    async def _try(self, job: Job) -> Tried:
        try:
            url, held = self._sealer.url(job.endpoint), self._sealer.secrets(job.endpoint)
        except CanNotOpen:
            log.critical("webhook_can_not_be_opened", endpoint=str(job.endpoint.id))
            return Tried(None, "its URL or secret can't be opened: set both again", 0)
        body = payload(job.event)
        headers = signed_headers(held, str(job.event.id), int(time.time()), body)
        about = {"content-type": "application/json", "user-agent": AGENT}
        return await self._sender.send(url, {**about, **headers}, body)

    async def _record(self, job: Job, tried: Tried) -> None:
        now = datetime.now(UTC)
        row, endpoint = job.delivery, job.endpoint
        values: dict[str, Any] = {
            "last_status": tried.status,
            "last_error": tried.error,
            "last_ms": tried.took_ms,
        }
        again = now + timedelta(seconds=pause_s(row.attempts + 1, self._draw, tried.retry_after_s))
        if tried.delivered:
            values |= {"state": "delivered", "finished_at": now}
        elif again > row.begun_at + GIVE_UP_AFTER:
            values |= {"state": "failed", "finished_at": now}
        else:
            values |= {"next_at": again}
        async with self._db.system_session() as session:
            await repository.record_try(session, row.id, values)
            since = await repository.mark(session, endpoint.id, failing=not tried.delivered)
            reason = None
            if tried.gone:
                reason = "its server answered 410: gone"
            elif since is not None and now - since >= DISABLE_AFTER:
                reason = f"nothing was delivered for {DISABLE_AFTER.days} days"
            if reason is not None and await repository.disable(session, endpoint.id, reason):
                DISABLED.inc()
                tenant = TenantId(endpoint.tenant_id)
                details = {"reason": reason, "host": endpoint.host}
                record(session, SYSTEM, Change("webhook.disable", str(endpoint.id), tenant, details))

    async def _reseal(self) -> int:
        async with self._db.system_session() as session:
            changed = 0
            for endpoint in await repository.all_endpoints(session):
                try:
                    changed += self._sealer.reseal(endpoint)
                except CanNotOpen:
                    log.critical("webhook_can_not_be_opened", endpoint=str(endpoint.id))
        return changed


def payload(event: WebhookEvent) -> bytes:
    """The body, the same bytes each time."""
    return msgspec.json.encode(
        {
            "type": event.kind,
            "timestamp": event.created_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            "tenant": str(event.tenant_id),
            "data": event.data,
        },
        order="sorted",
    )
