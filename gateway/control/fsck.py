"""The object store against the catalog: what no version refers to is removed, what is missing is reported.

An upload stores its artefact before its version has a row, and a deletion removes the reference before the
artefact, so a process that dies in between leaves an object that nobody will ever ask for. Its age tells it
from one that is being uploaded; it goes under the lock that uploads and deletions hold. Objects of tenants
that this database doesn't know, and of any other form, are not ours and stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import islice
from typing import Final
from uuid import UUID

import structlog

from adapters.store import NotFound, ObjectStore, artefact_of, artefact_path
from gateway.catalog import repository
from gateway.catalog.lifecycle import Shelf
from gateway.control.metrics import MISSING, ORPHANS_REMOVED
from gateway.db import Database
from gateway.principal import TenantId

log = structlog.get_logger(__name__)

ORPHAN_AGE_S: Final = 3_600.0
"""Longer than the last steps of any upload take."""

PAGE: Final = 500
MAX_ORPHANS: Final = 10_000
"""Removed in one round; the next goes on."""

Stored = tuple[TenantId, str]
"""An owner and an artefact of its."""


class Fsck:
    """Belongs to the leader. Its calls raise `StoreError` and `Unavailable`, and may be cut anywhere."""

    def __init__(self, database: Database, shelf: Shelf, *, orphan_age_s: float = ORPHAN_AGE_S) -> None:
        self._database = database
        self._shelf = shelf
        self._orphan_age_s = orphan_age_s

    async def remove_orphans(self) -> int:
        """Gives how many were removed."""
        orphans: list[Stored] = []
        async for page in _pages(self._shelf.store):
            async with self._database.system_reader() as session:
                found = await repository.unreferenced(session, page)
            orphans += [each for each in found if await self._is_old(each)]
            if len(orphans) >= MAX_ORPHANS:
                break
        removed = 0
        for owner, artefact in orphans:
            removed += await self._shelf.clear(owner, [artefact])
        ORPHANS_REMOVED.inc(removed)
        return removed

    async def find_missing(self) -> int:
        """Gives how many versions have lost their artefact; each is logged."""
        missing, after = 0, UUID(int=0)
        while True:
            async with self._database.system_reader() as session:
                page = await repository.list_stored(session, after, PAGE)
            if not page:
                MISSING.set(missing)
                return missing
            for _, tenant, artefact in page:
                missing += await self._is_lost(TenantId(tenant), artefact)
            after = page[-1][0]

    async def _is_old(self, stored: Stored) -> bool:
        try:
            age_s = await asyncio.to_thread(self._shelf.store.age_s, _path(stored))
        except NotFound:  # deleted meanwhile
            return False
        return age_s > self._orphan_age_s

    async def _is_lost(self, tenant: TenantId, artefact: str) -> bool:
        if await asyncio.to_thread(self._shelf.store.exists, _path((tenant, artefact))):
            return False
        async with self._database.tenant_reader(tenant) as session:
            lost = await repository.is_referenced(session, tenant, artefact)  # or deleted meanwhile
        if lost:
            log.error("artefact_missing", tenant=str(tenant), artefact=artefact)
        return lost


async def _pages(store: ObjectStore) -> AsyncIterator[list[Stored]]:
    """Every stored artefact."""
    paths = store.list("tenants")
    while page := await asyncio.to_thread(lambda: list(islice(paths, PAGE))):
        yield [each for path in page if (each := _stored(path)) is not None]


def _stored(path: str) -> Stored | None:
    named = artefact_of(path)
    if named is None:
        return None
    owner, artefact = named
    try:
        return TenantId(UUID(owner)), artefact
    except ValueError:
        return None


def _path(stored: Stored) -> str:
    owner, artefact = stored
    return artefact_path(str(owner), artefact)
