"""The bytes of an artefact end: its object first, so that nobody loads it again, then each replica's copies.

    kept       another version of its owner keeps the artefact: nothing is removed, and that is an end too
    removed    the object is gone from the store, looked at afterwards
    asked      each replica purges its device, memory and disk, and is asked afterwards what it holds
    ended      nothing is waited for any more: all replicas have purged, or were removed from the platform

Each step may be repeated by whoever comes next, a worker that was asked or control. A replica that can't be
reached holds the purge up and, once it is back, serves nothing before it has purged (`replicas/roster.py`).
One that was removed meanwhile is noted, and held to the same should it ever be registered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

import structlog

from adapters.store import ObjectStore, artefact_path
from gateway.audit.service import SYSTEM, Change, record
from gateway.catalog import stored
from gateway.db import Database
from gateway.errors import Unavailable
from gateway.models import ReplicaPurge, ReplicaSource
from gateway.replicas.driver import Driver, Purge, UpstreamFailed
from gateway.retirement import repository
from gateway.retirement.repository import DONE, ENDED, OWING, Asked, Purged

log = structlog.get_logger(__name__)

AT_ONCE: Final = 8
"""Replicas asked at a time for one artefact."""

NO_ANSWER: Final = "Nobody answers there."
"""Twice in a row, and the replica is away; once may be chance."""

Drivers = Callable[[], Mapping[str, Driver]]
"""By URL, all replicas that this process knows."""

_STATES: Final = {
    Purge.DONE: ReplicaPurge.PURGED,
    Purge.HELD: ReplicaPurge.HELD,
    Purge.UNVERIFIED: ReplicaPurge.UNVERIFIED,
}


class Purges:
    """One a process. Its calls raise `Unavailable` and `StoreError`, and may be cut anywhere."""

    def __init__(self, db: Database, store: ObjectStore, drivers: Drivers, base_id: str) -> None:
        self._db = db
        self._store = store
        self._drivers = drivers
        self._base_id = base_id

    async def advance(
        self, purged: Purged, *, whoever_keeps: bool = False, silent: set[str] | None = None
    ) -> bool:
        """Goes on with a purge that has begun, as far as it goes; whether it is over. `whoever_keeps`: no
        version has a claim (its tenant is leaving). `silent`: replicas that didn't answer lately, which are
        not asked; those that don't are added."""
        if not await self._remove_object(purged, whoever_keeps=whoever_keeps):
            return True
        over = await self._ask_replicas(purged, set() if silent is None else silent)
        if over:
            await self._end(purged, told=not whoever_keeps)
        return over

    async def _remove_object(self, purged: Purged, *, whoever_keeps: bool) -> bool:
        """False when the artefact is kept after all, and the purge with it is over."""
        tenant, artefact = purged
        async with self._db.tenant_session(tenant) as session:
            # The lock keeps an upload of the same content from finding the object and losing it right after.
            await stored.lock_artefact(session, artefact)
            if not whoever_keeps and await stored.is_referenced(session, tenant, artefact):
                await repository.forget(session, purged)
                await repository.mark_purged(session, purged)
                return False
            found = await repository.find(session, purged)
            if found is not None and found.object_gone_at is not None:
                return True
            path = artefact_path(str(tenant), artefact)
            await asyncio.to_thread(self._store.delete, path)
            if await asyncio.to_thread(self._store.exists, path):
                raise Unavailable("The object store still has what was deleted.")
            await repository.object_gone(session, purged)
        return True

    async def _ask_replicas(self, purged: Purged, silent: set[str]) -> bool:
        async with self._db.system_reader() as session:
            rows = await repository.replicas(session, self._base_id)
            states = await repository.replica_states(session, purged[0], [purged[1]])
        known = {url: (number, source) for url, number, source in rows}
        before = {row.url: row for row in states}
        done = {url for url, row in before.items() if row.state in DONE}
        drivers = self._drivers()
        places = asyncio.Semaphore(AT_ONCE)

        async def ask(url: str, replica: UUID, source: str) -> Asked:
            driver = drivers.get(url)
            if driver is None:
                listed = source == ReplicaSource.LISTED  # once, and by no settings now
                return Asked(url, replica, ReplicaPurge.GONE if listed else ReplicaPurge.AWAY)
            async with places:
                said = await _asked(driver, url, replica, purged, silent)
            was = before.get(url)
            missed = was is not None and (was.state in OWING or was.reason == NO_ANSWER)
            if said.reason == NO_ANSWER and not missed:
                return Asked(url, replica, ReplicaPurge.HELD, NO_ANSWER)
            return said

        asked = await asyncio.gather(*(ask(url, *known[url]) for url in known if url not in done))
        removed = [
            Asked(url, row.replica_id, ReplicaPurge.GONE, "It was removed before it had purged.")
            for url, row in before.items()
            if url not in known and url not in done
        ]
        async with self._db.system_session() as session:
            await repository.note_replicas(session, purged, [*asked, *removed])
        return all(each.state in ENDED for each in asked)

    async def _end(self, purged: Purged, *, told: bool) -> None:
        """`told`: in the audit log; of a tenant that leaves, the proof tells."""
        tenant, artefact = purged
        async with self._db.system_session() as session:
            if not await repository.end(session, purged):
                return
            versions = [f"{name}@{number}" for name, number in await repository.mark_purged(session, purged)]
            details = {"artefact": artefact, "versions": versions[:50], "num_versions": len(versions)}
            if told:
                record(session, SYSTEM, Change("adapter.purged", artefact, tenant, details))
        log.info("artefact_purged", tenant=str(tenant), artefact=artefact)


async def _asked(driver: Driver, url: str, replica: UUID, purged: Purged, silent: set[str]) -> Asked:
    tenant, artefact = purged
    if url in silent:
        return Asked(url, replica, ReplicaPurge.AWAY, NO_ANSWER)
    try:
        said = await driver.purge(artefact, str(tenant))
    except UpstreamFailed as error:
        # Of a slow one it isn't sure that it serves nothing: it is waited for, and goes on serving.
        if error.sent:
            return Asked(url, replica, ReplicaPurge.HELD, str(error)[:200])
        silent.add(url)
        return Asked(url, replica, ReplicaPurge.AWAY, NO_ANSWER)
    return Asked(url, replica, _STATES[said])
