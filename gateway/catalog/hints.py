"""What replicas are told of artefacts: that one will be wanted soon, or never again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import structlog

from gateway.principal import TenantId
from gateway.replicas.registry import Registry
from gateway.replicas.replica import Replica

log = structlog.get_logger(__name__)

MAX_PENDING = 256
"""Hints under way at a time; beyond it they are dropped, which costs a later request its head start only."""


class ReplicaHints:
    """Sent in the background: whoever gives a hint never waits for it, and no failure of one is an error."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._pending: set[asyncio.Task[None]] = set()

    def prefetch(self, owner: TenantId, artefact: str) -> None:
        """To the replica that will most likely serve it first."""
        likely = self._registry.likely(artefact)
        if likely is not None:
            self._send(likely, partial(likely.driver.prefetch, artefact, str(owner)))

    def retire(self, owner: TenantId, artefact: str) -> None:
        """To all: they forget it once nothing runs on it."""
        for replica in self._registry.all:
            replica.forget(artefact)
            self._send(replica, partial(replica.driver.retire, artefact, str(owner)))

    async def close(self) -> None:
        for task in self._pending:
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)

    def _send(self, replica: Replica, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if len(self._pending) >= MAX_PENDING:
            log.warning("hint_dropped", url=replica.url)
            return
        task = asyncio.create_task(_quietly(replica, call))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)


async def _quietly(replica: Replica, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await call()
    except Exception as error:
        log.info("hint_failed", url=replica.url, reason=str(error))
