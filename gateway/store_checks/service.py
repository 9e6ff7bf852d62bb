"""The object store as operators see it: how it is, checks of it, and control's part in them."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
import structlog
from sqlalchemy import func

from adapters.store import NotFound as NoObject
from adapters.store import ObjectStore, StoreError
from gateway.audit.service import Actor, Change, record
from gateway.catalog.store_faults import store_unavailable
from gateway.db import Database
from gateway.errors import Conflict, NotFound
from gateway.ids import uuid7
from gateway.models import CheckState, StoreCheck
from gateway.paging import ById
from gateway.retirement import repository as retirement
from gateway.store_checks import repository
from gateway.store_checks.found import Found
from gateway.store_checks.fsck import Fsck
from gateway.store_checks.schemas import CheckIn, CheckOut, StoreOut

log = structlog.get_logger(__name__)

PROBED: Final = "tenants/00000000-0000-0000-0000-000000000000/probe"
"""Asked for to see whether the store answers; never there."""


class StoreChecks:
    """One a worker."""

    def __init__(self, db: Database, store: ObjectStore, url: str) -> None:
        self._db = db
        self._store = store
        self._url = url

    async def state(self) -> StoreOut:
        error = await asyncio.to_thread(self._probe)
        told = None if error is None else store_unavailable(error)
        async with self._db.system_reader() as session:
            lost = await repository.num_lost(session)
            under_way = await retirement.num_under_way(session)
            owing = await retirement.owing(session)
            last = await repository.page(session, None, 1)
        parts = urlsplit(self._url)
        return StoreOut(
            kind="s3" if parts.scheme == "s3" else "folder",
            place=f"{parts.scheme or 'file'}://{parts.hostname or ''}{parts.path}",
            reachable=error is None,
            code=None if told is None else told.code,
            message=None if error is None else str(error)[:300],
            versions_lost=lost,
            purges_under_way=under_way,
            replicas_owing=sorted(owing),
            last_check=CheckOut.of(last[0]) if last else None,
        )

    async def ask(self, actor: Actor, wanted: CheckIn) -> StoreCheck:
        """Control's leader makes it. Raises `Conflict` while one waits or runs."""
        check = StoreCheck(
            id=uuid7(),
            repair=wanted.repair,
            depth=wanted.depth,
            state=CheckState.WAITING,
            asked_by=actor.name,
        )
        async with self._db.system_session() as session:
            running = await repository.open_check(session)
            if running is not None:
                message = f"The check {running.id} has not ended yet."
                raise Conflict(message, code="store_check_running", details={"check": str(running.id)})
            details = {"repair": wanted.repair, "depth": wanted.depth}
            record(session, actor, Change("store.check", str(check.id), details=details))
            return await repository.add(session, check)

    async def get(self, check: UUID) -> StoreCheck:
        """Raises `NotFound`."""
        async with self._db.system_reader() as session:
            found = await repository.find(session, check)
        if found is None:
            raise NotFound("There is no such check.")
        return found

    async def list(self, start: ById | None, limit: int) -> list[StoreCheck]:
        async with self._db.system_reader() as session:
            return [*await repository.page(session, start, limit)]

    def _probe(self) -> StoreError | None:
        try:
            self._store.size(PROBED)
        except NoObject:
            return self._probe_bucket()
        except StoreError as error:
            return error
        return None

    def _probe_bucket(self) -> StoreError | None:
        """An absent object and an absent bucket look alike until something is listed."""
        try:
            next(iter(self._store.list(PROBED)), None)
        except StoreError as error:
            return error
        return None


class CheckJob:
    """Control's part: makes what was asked for, and what a leader that died had begun."""

    def __init__(self, db: Database, fsck: Fsck) -> None:
        self._db = db
        self._fsck = fsck

    async def run_once(self) -> int:
        async with self._db.system_session() as session:
            check = await repository.open_check(session)
            if check is None:
                return 0
            await repository.move(session, check.id, state=CheckState.RUNNING, started_at=func.now())
        try:
            found = await self._fsck.check(repair=check.repair, depth=check.depth)  # type: ignore[arg-type]
        except StoreError as error:
            told = store_unavailable(error)
            log.warning("store_check_failed", reason=str(error))
            await self._end(check.id, CheckState.FAILED, error=f"{told.code}: {str(error)[:300]}")
            return 1
        kept = {**msgspec.to_builtins(found), "clean": _is_clean(found, repaired=check.repair)}
        await self._end(check.id, CheckState.DONE, found=kept)
        return 1

    async def _end(self, check: UUID, state: CheckState, **values: object) -> None:
        async with self._db.system_session() as session:
            await repository.move(session, check, state=state, ended_at=func.now(), **values)
            await repository.forget_old(session)


def _is_clean(found: Found, *, repaired: bool) -> bool:
    """What is lost stays a fault, though its versions say so."""
    lost = found.missing + found.truncated + found.corrupt
    left = found.faults - lost
    if repaired:
        left -= found.removed + found.discarded
    return lost == 0 and left <= 0
