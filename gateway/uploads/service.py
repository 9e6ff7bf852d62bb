"""Files that come in over several requests: made, written, looked at, given up."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import structlog

from gateway.audit.service import Actor, Change, record
from gateway.catalog.parts import UploadLimits, too_large
from gateway.catalog.spool import spool_errors
from gateway.db import Database
from gateway.errors import Conflict, NotFound, Unavailable
from gateway.ids import uuid7
from gateway.models import Upload
from gateway.paging import ById
from gateway.principal import TenantId
from gateway.tenant_slots import TenantSlots
from gateway.uploads import repository
from gateway.uploads.arrival import Arrival, Place
from gateway.uploads.files import InUse, OpenFile, OpenUploads
from gateway.uploads.protocol import Announced, Busy, Checksum, ChecksumMismatch, require_offset
from gateway.uploads.room import Room

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ages:
    """How long an upload that is no version yet may lie."""

    idle: timedelta = timedelta(hours=24)  # since its last byte
    total: timedelta = timedelta(days=7)  # since it was made


@dataclass(frozen=True, slots=True)
class Piece:
    """What one request brings."""

    offset: int
    length: int | None  # announced, of its body
    checksum: Checksum | None
    chunks: AsyncIterator[bytes]


class Uploads:
    """One a worker; files are the machine's, rows everybody's."""

    def __init__(
        self,
        database: Database,
        files: OpenUploads,
        room: Room,
        limits: UploadLimits,
        ages: Ages,
        slots: TenantSlots,
    ) -> None:
        """`slots`: requests that may write at a time; each holds a connection, a file and a buffer."""
        self._database = database
        self.files = files
        self._room = room
        self.limits = limits
        self._ages = ages
        self._slots = slots
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="upload-write")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def create(self, tenant: TenantId, actor: Actor, wanted: Announced) -> Upload:
        """Makes an empty upload that all its bytes have room for. Raises `Conflict` or `Unavailable`."""
        upload = Upload(
            id=uuid7(),
            tenant_id=tenant,
            file=wanted.file,
            num_bytes=wanted.num_bytes,
            received=0,
            told=wanted.told,
            sha256=wanted.sha256,
            expires_at=datetime.now(UTC) + min(self._ages.idle, self._ages.total),
        )
        with spool_errors():
            made = self.files.made(upload.id)
            await asyncio.to_thread(made.__enter__)
        try:
            async with self._database.tenant_session(tenant) as session:
                await self._room.admit(session, tenant, upload)
                record(session, actor, _change("upload.create", upload))
        except BaseException as error:
            made.__exit__(type(error), error, error.__traceback__)
            raise
        made.__exit__(None, None, None)
        return upload

    async def get(self, tenant: TenantId, upload: UUID) -> Upload:
        """Raises `NotFound`: unknown, expired and another tenant's are the same."""
        async with self._database.tenant_reader(tenant) as session:
            found = await repository.find_upload(session, tenant, upload)
        if found is None:
            raise no_such_upload()
        return found

    async def get_here(self, tenant: TenantId, upload: UUID) -> Upload:
        """Raises `NotFound`, and `Unavailable` when its bytes are on another machine."""
        found = await self.get(tenant, upload)
        if found.version is None and not await asyncio.to_thread(self.files.has, upload):
            raise _elsewhere()
        return found

    async def list_of(self, tenant: TenantId, start: ById | None, limit: int) -> Sequence[Upload]:
        """Those that are no version yet, newest first."""
        async with self._database.tenant_reader(tenant) as session:
            return await repository.list_uploads(session, tenant, start, limit)

    async def write(self, tenant: TenantId, upload: UUID, piece: Piece) -> Upload:
        """Raises `NotFound`, `Conflict` for another offset than its own, `Busy`, `BodyTooLarge`,
        `ChecksumMismatch`, `RequestTimeout`, `RateLimited`, `Unavailable`."""
        with self._slots.hold(tenant), spool_errors():
            file = await asyncio.to_thread(self.open_file, upload)
            try:
                return await self._write(tenant, upload, piece, file)
            finally:
                file.close()

    def open_file(self, upload: UUID) -> OpenFile:
        """Locked; blocks. Raises `Busy` or `Unavailable`."""
        try:
            return self.files.open(upload)
        except InUse:
            raise Busy("Another request writes or takes this upload now. Ask for its offset.") from None
        except FileNotFoundError:
            raise _elsewhere() from None

    async def delete(self, tenant: TenantId, actor: Actor, upload: UUID) -> None:
        """Ends an upload that is no version yet, with its bytes. Raises `NotFound` or `Busy`."""
        found = await self.get(tenant, upload)
        if found.version is not None:
            raise no_such_upload()
        file = await asyncio.to_thread(self._open_if_here, upload)
        try:
            async with self._database.tenant_session(tenant) as session:
                if not await repository.delete_uploads(session, tenant, [upload]):
                    raise no_such_upload()
                record(session, actor, _change("upload.delete", found))
            await asyncio.to_thread(self.files.remove, upload)
        finally:
            if file is not None:
                file.close()

    async def discard(self, tenant: TenantId, uploads: Sequence[UUID]) -> None:
        """Ends uploads whose content was refused."""
        async with self._database.tenant_session(tenant) as session:
            gone = await repository.delete_uploads(session, tenant, uploads)
        for upload in gone:
            await asyncio.to_thread(self.files.remove, upload)

    async def _write(self, tenant: TenantId, upload: UUID, piece: Piece, file: OpenFile) -> Upload:
        begun = await self._begin(tenant, upload, piece)
        assert begun.writer is not None
        progress = _Row(self._database, tenant, upload, begun.writer, self._ages)
        place = Place(begun.file, piece.offset, begun.num_bytes)
        arrival = Arrival(file, place, progress, self.limits, self._threads, piece.checksum)
        if await arrival.take(piece.chunks) == begun.num_bytes and begun.sha256 is not None:
            await self._check_whole(tenant, begun, file.path)
        return await self.get(tenant, upload)

    async def _begin(self, tenant: TenantId, upload: UUID, piece: Piece) -> Upload:
        """Makes the request the upload's writer."""
        async with self._database.tenant_session(tenant) as session:
            found = await repository.find_upload(session, tenant, upload, lock=True)
            if found is None or found.version is not None:
                raise no_such_upload()
            require_offset(found.file, piece.offset, found.received)
            if piece.length is not None and piece.offset + piece.length > found.num_bytes:
                raise too_large(found.file, found.num_bytes)
            found.writer = uuid7()
        return found

    async def _check_whole(self, tenant: TenantId, upload: Upload, path: Path) -> None:
        """Raises `ChecksumMismatch`; the upload is gone then: nobody knows which of its bytes are wrong."""
        found = await asyncio.get_running_loop().run_in_executor(self._threads, _sha256_of, path)
        if found != upload.sha256:
            await self.discard(tenant, [upload.id])
            raise ChecksumMismatch(
                f"'{upload.file}': its {upload.num_bytes:,} bytes have not the sha256 that was announced. "
                "Upload it again from byte 0.",
                param=upload.file,
            )

    def _open_if_here(self, upload: UUID) -> OpenFile | None:
        return self.open_file(upload) if self.files.has(upload) else None


class _Row:
    """`arrival.Progress` of one request."""

    def __init__(self, database: Database, tenant: TenantId, upload: UUID, writer: UUID, ages: Ages) -> None:
        self._database = database
        self._tenant = tenant
        self._upload = upload
        self._writer = writer
        self._ages = ages

    async def advance(self, received: int) -> None:
        async with self._database.tenant_session(self._tenant) as session:
            row = await repository.advance(
                session, self._upload, self._writer, received, self._ages.idle, self._ages.total
            )
        if row is None:
            raise _overtaken()

    async def require_still(self) -> None:
        async with self._database.tenant_reader(self._tenant) as session:
            if not await repository.is_writer(session, self._upload, self._writer):
                raise _overtaken()


def _sha256_of(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _overtaken() -> Conflict:
    return Conflict("Another request has written this upload meanwhile.", code="upload_overtaken")


def _elsewhere() -> Unavailable:
    return Unavailable(
        "The bytes of this upload are not on this machine of the gateway. Try again.", code="upload_not_here"
    )


def no_such_upload() -> NotFound:
    """Unknown, expired, deleted, another tenant's: the same answer."""
    return NotFound("There is no such upload.", param="upload_id", code="upload_not_found")


def _change(action: str, upload: Upload) -> Change:
    details = {"file": upload.file, "bytes": upload.num_bytes}
    return Change(action, str(upload.id), TenantId(upload.tenant_id), details)
