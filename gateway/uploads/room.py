"""A tenant's storage: what it keeps, what is on its way in, and that both together stay within its allowance.

Room is promised before bytes take it, under a lock of the tenant's, so two uploads never find the same room.
A promise is a row: of an upload that goes over several requests its own (`uploads`), of everything else a
hold (`storage_holds`). It ends in the transaction that makes the version, or with its directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import structlog

from gateway.db import Database, TenantWrite
from gateway.errors import Conflict, Unavailable
from gateway.ids import uuid7
from gateway.models import Upload
from gateway.principal import TenantId
from gateway.uploads import repository
from gateway.uploads.repository import Taken

log = structlog.get_logger(__name__)

STEP_BYTES: Final = 64 * 1024 * 1024
"""Promised at a time to what does not say how long it is."""
HOLD_AGE: Final = timedelta(hours=3)
"""Of a hold that nobody ended because its machine is gone. Longer than any upload and its proof take."""
TAKEN_KEPT: Final = timedelta(hours=1)
"""How long an upload that became part of a version answers a client that asks again."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """Of one tenant."""

    num_bytes: int = 100 * 1024**3  # packed versions that are not retired, and what is on its way in
    versions: int = 10_000  # not retired
    open_uploads: int = 32  # that are no version yet

    def require_bytes(self, taken: Taken, least: int) -> None:
        """Raises `Conflict`."""
        if taken.num_bytes + least > self.num_bytes:
            raise Conflict(
                f"A tenant's adapters and uploads have at most {self.num_bytes / 2**30:g} GiB; "
                f"{max(0, self.num_bytes - taken.num_bytes):,} bytes are free. Delete some first.",
                code="adapter_storage_full",
            )

    def require_version(self, taken: Taken) -> None:
        """Raises `Conflict`."""
        if taken.versions >= self.versions:
            raise Conflict(
                f"A tenant has at most {self.versions:,} versions of adapters. Delete some first.",
                code="too_many_versions",
            )

    def require_upload(self, taken: Taken) -> None:
        """Raises `Conflict`."""
        if taken.open_uploads >= self.open_uploads:
            raise Conflict(
                f"A tenant has at most {self.open_uploads:,} open uploads. Finish or delete one first.",
                code="too_many_open_uploads",
            )


class Hold:
    """What one adapter on its way in has been promised, beside `upload_bytes` of its own `uploads`."""

    def __init__(self, room: Room, tenant: TenantId, hold: UUID) -> None:
        self._room = room
        self._tenant = tenant
        self.id = hold
        self.num_bytes = 0
        self.uploads: Sequence[UUID] = ()
        self.upload_bytes = 0

    async def reach(self, num_bytes: int, *, step: int = 0) -> None:
        """Makes sure of `num_bytes` in all, and asks for up to `step` more at once. Raises `Conflict`."""
        if num_bytes > self.num_bytes:
            self.num_bytes = await self._room.promise(self._tenant, self.id, num_bytes, num_bytes + step)

    async def become_version(self, num_bytes: int) -> None:
        """The adapter is packed, and so long: that room, and one version, are its own. Raises `Conflict`."""
        beyond_uploads = max(0, num_bytes - self.upload_bytes)
        await self._room.promise(self._tenant, self.id, beyond_uploads, beyond_uploads, makes_version=True)
        self.num_bytes = beyond_uploads

    async def settle(self, session: TenantWrite, adapter: str, version: int) -> None:
        """In the transaction that makes the version: from here on it counts in the hold's place."""
        await repository.delete_hold(session, self.id)
        await repository.mark_taken(session, self.uploads, adapter, version, TAKEN_KEPT)


class Room:
    """Promises of one worker; all its state is in the database."""

    def __init__(self, database: Database, allowance: Allowance) -> None:
        self._database = database
        self.allowance = allowance

    @asynccontextmanager
    async def hold(self, tenant: TenantId, place: str) -> AsyncIterator[Hold]:
        """`place`: the directory that it is for. Promises nothing yet."""
        hold = Hold(self, tenant, uuid7())
        async with self._database.tenant_session(tenant) as session:
            expires_at = datetime.now(UTC) + HOLD_AGE
            await repository.add_hold(session, tenant, hold.id, place, expires_at)
        try:
            yield hold
        finally:
            # Shielded: whoever leaves before the end must not keep the room until the hold expires.
            await asyncio.shield(self._end(tenant, hold.id))

    async def promise(
        self, tenant: TenantId, hold: UUID, least: int, most: int, *, makes_version: bool = False
    ) -> int:
        """What the hold has now: `most` bytes if there is room, at least `least`. Raises `Conflict`."""
        async with self._database.tenant_session(tenant) as session:
            await repository.lock_storage(session, tenant)
            taken = await repository.taken_by(session, tenant, without=hold)
            if makes_version:
                self.allowance.require_version(taken)
            self.allowance.require_bytes(taken, least)
            granted = max(least, min(most, self.allowance.num_bytes - taken.num_bytes))
            await repository.resize_hold(session, hold, granted, makes_version=makes_version)
        return granted

    async def admit(self, session: TenantWrite, tenant: TenantId, upload: Upload) -> None:
        """Makes the row of an upload that there is room for. Raises `Conflict`."""
        await repository.lock_storage(session, tenant)
        taken = await repository.taken_by(session, tenant)
        self.allowance.require_upload(taken)
        self.allowance.require_bytes(taken, upload.num_bytes)
        await repository.add_upload(session, upload)

    async def _end(self, tenant: TenantId, hold: UUID) -> None:
        try:
            async with self._database.tenant_session(tenant) as session:
                await repository.delete_hold(session, hold)
        except Unavailable as error:  # it goes with its directory, or by its age
            log.warning("hold_not_ended", tenant=str(tenant), reason=error.message)
