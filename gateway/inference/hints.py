"""Hints to replicas: a request's adapter is loaded while its limits are asked and it waits."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.inference.call import Call
from gateway.replicas.registry import Registry, hint
from gateway.replicas.replica import IN_HOST

MAX_HINTS: Final = 256
"""Under way at a time; without one a request's adapter is loaded when it gets there."""


class Hints:
    """One a worker. Nobody waits for a hint."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._pending: set[asyncio.Task[None]] = set()

    def give(self, call: Call) -> None:
        """None where the adapter lies already, or was asked for within the last seconds. What a refused
        request loads is charged to its owner's rate at the replica, of which half is left to requests."""
        adapter = call.resolved.adapter
        replica = self._registry.choose(call.want) if adapter else None
        if adapter is None or replica is None or replica.residency(adapter.artefact) >= IN_HOST:
            return
        if len(self._pending) >= MAX_HINTS:
            return
        task = asyncio.create_task(hint(replica, adapter.artefact, str(adapter.owner)))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
