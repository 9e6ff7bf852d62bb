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

ROUND_S: Final = 15.0
"""A round goes on while proofs end and others are due, but no longer; what runs then runs on."""
LOOK_S: Final = 1.0
"""Between two looks for what is due, while there is room for more."""


class Sweep:
    """Belongs to the leader; `look` brings its picture of the replicas up to date and says how many may
    serve."""

    def __init__(self, database: Database, prover: Prover, look: Callable[[], Awaitable[int]]) -> None:
        self._database = database
        self._prover = prover
        self._look = look
        self._running: dict[asyncio.Task[None], TenantId] = {}

    async def run_once(self) -> int:
        """Gives how many proofs were begun. Raises `Unavailable`."""
        begun, until = 0, time.monotonic() + ROUND_S
        while time.monotonic() < until:
            begun += await self._begin()
            if not self._running:
                break
            await asyncio.wait(self._running, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        return begun

    async def close(self) -> None:
        """What runs is let go."""
        running = list(self._running)
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _begin(self) -> int:
        """Begins what there is room for: each tenant's first, then each one's second."""
        async with self._database.system_reader() as session:
            WAITING.set(await repository.waiting(session))
            keys = await repository.due(session, self._prover.base_id, AT_ONCE * AT_ONCE_TENANT)
        if not keys or not await self._look():
            return 0
        begun, has = 0, Counter(self._running.values())
        for key in keys:
            if len(self._running) < AT_ONCE and has[key.tenant] < AT_ONCE_TENANT:
                has[key.tenant] += 1
                self._start(key)
                begun += 1
        return begun

    def _start(self, key: TaskKey) -> None:
        task = asyncio.create_task(self._prove(key))
        self._running[task] = key.tenant
        task.add_done_callback(self._running.pop)

    async def _prove(self, key: TaskKey) -> None:
        try:
            await self._prover.prove(key)
        except Unavailable as error:
            log.warning("proof_not_made", version=str(key.version_id), reason=error.message)
        except Exception:  # one that can't be proved keeps no other from it
            log.exception("proof_failed", version=str(key.version_id))
