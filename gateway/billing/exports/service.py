"""Asking for exports and fetching them. Control makes them (`maker.py`)."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import BinaryIO, Final

from sqlalchemy.ext.asyncio import AsyncSession

from adapters.store import NotFound as NotStored
from adapters.store import ObjectStore, StoreError
from gateway.audit.service import Actor, Change, record
from gateway.billing.exports import repository
from gateway.billing.exports.files import CSV, MANIFEST, PARQUET
from gateway.billing.exports.places import file_path, wanted
from gateway.billing.exports.repository import ExportFilters, ExportPlace
from gateway.billing.exports.schemas import File
from gateway.billing.months import month_text
from gateway.catalog.spool import Spool
from gateway.db import Database
from gateway.errors import Conflict, NotFound, Unavailable
from gateway.models import BillingExport
from gateway.principal import TenantId
from gateway.tenant_slots import TenantSlots

DOWNLOADS: Final = 16
DOWNLOADS_TENANT: Final = 2
"""At a time in one worker."""

CHUNK_BYTES: Final = 256 * 1024
NAMES: Final[dict[File, str]] = {"csv": CSV, "parquet": PARQUET, "manifest": MANIFEST}
MEDIA_TYPES: Final[dict[File, str]] = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "manifest": "application/json",
}


@dataclass(slots=True, weakref_slot=True)
class Download:
    """An open file without a name: it is gone once it is closed."""

    opened: BinaryIO
    num_bytes: int
    ended: Callable[[], object]  # its place is free from here on

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while chunk := await asyncio.to_thread(self.opened.read, CHUNK_BYTES):
                yield chunk
        finally:
            self.opened.close()
            self.ended()


class Exports:
    """`tenant` None: the operators' exports, of all tenants."""

    def __init__(self, db: Database, store: ObjectStore, home: Path, issuer: str) -> None:
        self._db = db
        self._store = store
        self._spool = Spool(home, "download-")
        self._issuer = issuer
        self._slots = TenantSlots("downloads", DOWNLOADS, DOWNLOADS_TENANT)

    async def ask(self, actor: Actor, tenant: TenantId | None, month: date) -> BillingExport:
        """The export of the month as it stands now; one that exists already as it is."""
        async with self._db.system_session() as session:
            closed = await repository.is_closed(
                session, month
            )  # before the sum: once closed, nothing is added
            through = await repository.through_seq(session, tenant, month)
            asked = wanted(self._issuer, tenant, month, through, closed)
            found = await repository.find(session, tenant, asked["id"])
            if found is not None and found.state in ("waiting", "done"):
                return found
            export = await repository.ask(session, asked | {"requested_by": actor.name})
            details = {"month": month_text(month), "through_seq": through}
            record(session, actor, Change("export.create", export.id, tenant, details))
        return export

    async def page(
        self, tenant: TenantId | None, wanted: ExportFilters, after: ExportPlace | str | None, limit: int
    ) -> list[BillingExport]:
        """Newest first, after a place or an export. Raises `NotFound` for one that is none."""
        async with self._reader(tenant) as session:
            if isinstance(after, str):
                last = _existing(await repository.find(session, tenant, after))
                after = (last.created_at, last.id)
            return await repository.page(session, tenant, wanted, after, limit)

    async def get(self, tenant: TenantId | None, export: str) -> BillingExport:
        """Raises `NotFound`."""
        async with self._reader(tenant) as session:
            return _existing(await repository.find(session, tenant, export))

    async def fetch(self, tenant: TenantId | None, export: str, file: File) -> Download:
        """Raises `NotFound`, `Conflict` while it is not done, `RateLimited` for too many at a time (each lies
        on this gateway's disk until it is read), and `Unavailable` without the store."""
        found = await self.get(tenant, export)
        if found.state != "done":
            raise Conflict(f"This export is {found.state}.", code="export_not_ready")
        self._slots.take(tenant)
        try:
            opened, num_bytes = await self._opened(file_path(found, NAMES[file]))
        except BaseException:
            self._slots.give_back(tenant)
            raise
        download = Download(opened, num_bytes, lambda: None)
        # at its end, or once nobody holds one whose reading never began
        download.ended = weakref.finalize(download, self._left, opened, tenant)
        return download

    def _left(self, opened: BinaryIO, tenant: TenantId | None) -> None:
        opened.close()
        self._slots.give_back(tenant)

    async def _opened(self, path: str) -> tuple[BinaryIO, int]:
        try:
            return await asyncio.to_thread(self._open, path)
        except NotStored as error:
            raise Conflict("This export was superseded: ask again.", code="export_not_ready") from error
        except StoreError as error:
            raise Unavailable("The object store cannot answer now. Try again shortly.") from error

    def _open(self, path: str) -> tuple[BinaryIO, int]:
        with self._spool.directory() as folder:  # gone at once: whoever has it open reads on
            target = folder / "file"
            self._store.fetch_file(path, target)
            opened = target.open("rb")
        return opened, os.fstat(opened.fileno()).st_size

    def _reader(self, tenant: TenantId | None) -> AbstractAsyncContextManager[AsyncSession]:
        return self._db.system_reader() if tenant is None else self._db.tenant_reader(tenant)


def _existing(export: BillingExport | None) -> BillingExport:
    if export is None:
        raise NotFound("There is no such export.")
    return export
