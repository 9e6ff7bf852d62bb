"""How a worker learns that something of a tenant changed: a key revoked, rotated or narrowed, a tenant
suspended, a shared adapter moved or taken back.

Each acquire returns the tenant's epoch from Redis, which is compared with that of the proof
(`authenticator.py`); that alone does it while Redis has what was published. This is for when it has not: once
a second the epochs of all tenants whose keys are known here, or whose adapters others use here, are read from
PostgreSQL, where they are true. So
no worker accepts what was revoked `SWEEP_S` plus one query ago, whatever is lost on the way. A notification
of PostgreSQL makes it milliseconds; nothing depends on one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol
from uuid import UUID

import asyncpg
import structlog
from prometheus_client import Counter, Gauge

from gateway.api_keys.authenticator import Authenticator
from gateway.db import Database, listening_url
from gateway.errors import Unavailable
from gateway.principal import TenantId
from gateway.tenants import epochs

log = structlog.get_logger(__name__)

SWEEP_S: Final = 1.0
RECONNECT_S: Final = 1.0
CONNECT_TIMEOUT_S: Final = 3.0
CHANNEL: Final = "motet_epochs"

NEWS = Counter("motet_epoch_news", "Tenants whose cached keys were dropped, by how it was learned.", ["by"])
LISTENING = Gauge(
    "motet_epoch_listeners",
    "Workers that hear PostgreSQL's notifications of changed keys and tenants.",
    multiprocess_mode="livesum",
)


class Knowing(Protocol):
    """What is kept of tenants, and goes when their epochs move."""

    def tenants(self) -> list[TenantId]: ...

    def moved(self, tenant: TenantId, epoch: int) -> bool: ...


class Revocation:
    """One per worker."""

    def __init__(self, database_url: str, db: Database, keys: Authenticator, *others: Knowing) -> None:
        self._url = database_url
        self._db = db
        self._keys = keys
        self._all: tuple[Knowing, ...] = (keys, *others)
        self.listening = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = {
            asyncio.create_task(self._sweep_forever(), name="sweep-epochs"),
            asyncio.create_task(self._listen_forever(), name="listen-for-epochs"),
        }
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def sweep(self) -> None:
        """One look at the truth. Raises `Unavailable`."""
        tenants = list({tenant for each in self._all for tenant in each.tenants()})
        if not tenants:
            return
        async with self._db.system_reader() as session:
            found = await epochs.read(session, tenants)
        for tenant, epoch in found:
            self._learned(tenant, epoch, "sweep")

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.sweep()
                self._keys.database_answers(True)
            except Unavailable:
                self._keys.database_answers(False)
            except Exception:
                log.exception("epoch_sweep_failed")

    async def _listen_forever(self) -> None:
        told = False
        while True:
            try:
                await self._listen()
                log.warning("epoch_listener_cut")
                told = False
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                if not told:  # once an outage, not once a second
                    log.warning("epoch_listener_away", error=type(error).__name__)
                told = True
            except Exception:
                log.exception("epoch_listener_failed")
            await asyncio.sleep(RECONNECT_S)

    async def _listen(self) -> None:
        """Until the connection ends."""
        connection = await asyncpg.connect(
            listening_url(self._url), timeout=CONNECT_TIMEOUT_S, server_settings={"application_name": "motet"}
        )
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        try:
            await connection.add_listener(CHANNEL, self._heard)
            LISTENING.inc()
            self.listening.set()
            try:
                await ended.wait()
            finally:
                self.listening.clear()
                LISTENING.dec()
        finally:
            connection.terminate()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        tenant, _, epoch = str(payload).partition(" ")
        self._learned(TenantId(UUID(tenant)), int(epoch), "notification")

    def _learned(self, tenant: TenantId, epoch: int, by: str) -> None:
        dropped = [each.moved(tenant, epoch) for each in self._all]
        if any(dropped):
            NEWS.labels(by).inc()
