"""Control's part in proofs: those whose prover died, that found no replica, or that nobody has begun."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from gateway.db import Database
from gateway.errors import Unavailable
from gateway.principal import TenantId
from gateway.proofs import repository
from gateway.proofs.metrics import WAITING
from gateway.proofs.places import AT_ONCE, AT_ONCE_TENANT
from gateway.proofs.proving import Prover
from gateway.proofs.repository import TaskKey

log = structlog.get_logger(__name__)

SWEEP_S: Final = 30.0
"""What one round begins proofs for; the next goes on."""


class Sweep:
    """Belongs to the leader; `look` brings its picture of the replicas up to date and says how many may
    serve. `run_once` raises `Unavailable`, and may be cut anywhere."""

    def __init__(self, database: Database, prover: Prover, look: Callable[[], Awaitable[int]]) -> None:
        self._database = database
        self._prover = prover
        self._look = look

    async def run_once(self) -> int:
        """Until nothing is due, but `SWEEP_S` at most; gives how many proofs were begun."""
        begun, until = 0, time.monotonic() + SWEEP_S
        running: dict[asyncio.Task[None], TenantId] = {}
        try:
            while time.monotonic() < until:
                begun += await self._begin(running)
                if not running:
                    break
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    del running[each]
            if running:
                await asyncio.wait(running)
        finally:
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return begun

    async def _begin(self, running: dict[asyncio.Task[None], TenantId]) -> int:
        """Begins what there is room for: each tenant's first, then each one's second."""
        async with self._database.system_reader() as session:
            WAITING.set(await repository.waiting(session))
            keys = await repository.due(session, self._prover.base_id, AT_ONCE * AT_ONCE_TENANT)
        if not keys or not await self._look():
            return 0
        begun, has = 0, Counter(running.values())
        for key in keys:
            if len(running) >= AT_ONCE or has[key.tenant] >= AT_ONCE_TENANT:
                continue
            has[key.tenant] += 1
            running[asyncio.create_task(self._prove(key))] = key.tenant
            begun += 1
        return begun

    async def _prove(self, key: TaskKey) -> None:
        try:
            await self._prover.prove(key)
        except Unavailable as error:
            log.warning("proof_not_made", version=str(key.version_id), reason=error.message)
        except Exception:  # one that can't be proved keeps no other from it
            log.exception("proof_failed", version=str(key.version_id))
