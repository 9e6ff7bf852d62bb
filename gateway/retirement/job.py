"""Control's part: what is due, what is under way, and what replicas that came back still owe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final

import structlog

from adapters.store import StoreError
from gateway.audit.service import SYSTEM
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.retirement import repository
from gateway.retirement.purge import Drivers, Purges
from gateway.retirement.repository import Purged

log = structlog.get_logger(__name__)

BATCH: Final = 200
"""Artefacts of one round, those least recently tried; of each tenant in turn as they fall due."""

AT_ONCE: Final = 4
MEMORY: Final = timedelta(days=90)
"""So long it is remembered which replicas were removed before they had purged."""


class PurgeJob:
    """Belongs to the leader; may be cut anywhere. `refresh` makes the replicas known."""

    def __init__(
        self, db: Database, purges: Purges, drivers: Drivers, refresh: Callable[[], Awaitable[None]]
    ) -> None:
        self._db = db
        self._purges = purges
        self._drivers = drivers
        self._refresh = refresh

    async def run_once(self) -> int:
        """Gives how many artefacts' purges ended. One that can't go on now holds up no other."""
        await self._refresh()
        async with self._db.system_reader() as session:
            back = await repository.come_back(session, sorted(self._drivers()), BATCH)
            due = await repository.due(session, BATCH)
        for each in due:
            async with self._db.system_session() as session:
                await repository.begin(session, each, SYSTEM.name)
        async with self._db.system_reader() as session:
            under_way = await repository.under_way(session, BATCH)
        return await self._advance([*back, *under_way])

    async def forget(self) -> int:
        async with self._db.system_session() as session:
            return await repository.forget_ended(session, MEMORY)

    async def _advance(self, artefacts: Sequence[Purged]) -> int:
        places, silent, failed = asyncio.Semaphore(AT_ONCE), set[str](), asyncio.Event()

        async def advance(purged: Purged) -> bool:
            async with places:
                if failed.is_set():  # the store, or the database: the others would wait as long
                    return False
                try:
                    return await self._purges.advance(purged, silent=silent)
                except (Unavailable, StoreError) as error:
                    log.warning("purge_waits", tenant=str(purged[0]), artefact=purged[1], reason=str(error))
                    failed.set()
                    await self._note_try(purged)
                    return False

        return sum(await asyncio.gather(*(advance(each) for each in artefacts)))

    async def _note_try(self, purged: Purged) -> None:
        """So that those behind it have their turn."""
        async with self._db.system_session() as session:
            await repository.note_replicas(session, purged, [])
