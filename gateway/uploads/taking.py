"""The ways in which a version's files come to lie in one directory of the spool, before they are judged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from uuid import UUID

import msgspec

from adapters.refusal import RequestRefused, refusal_of
from gateway.catalog import repository as catalog
from gateway.catalog.intake import HeldDirectory, Intake, Stored, Upload
from gateway.catalog.parts import CONFIG_PART, WEIGHTS_PART, Parts, UploadLimits, missing_part
from gateway.catalog.repository import Line
from gateway.catalog.spool import spool_errors
from gateway.db import Database
from gateway.errors import ApiError, BadRequest, Conflict, Timeout, from_refusal
from gateway.models import Upload as UploadRow
from gateway.principal import TenantId
from gateway.uploads import repository
from gateway.uploads.protocol import is_zip
from gateway.uploads.room import TAKEN_KEPT
from gateway.uploads.s3_source import S3Source
from gateway.uploads.schemas import VersionFrom
from gateway.uploads.service import Uploads, no_such_upload
from gateway.uploads.unpacking import unpack
from gateway.uploads.url_source import UrlSource

MAX_JSON_BYTES = 16 * 1024
_CONTENT_REFUSED = frozenset({400, 413, 415, 422})


class Taking:
    """One a worker."""

    def __init__(
        self,
        database: Database,
        base_id: str,
        intake: Intake,
        uploads: Uploads,
        s3: S3Source,
        urls: UrlSource,
    ) -> None:
        self._database = database
        self._base_id = base_id
        self._intake = intake
        self._uploads = uploads
        self._s3 = s3
        self._urls = urls
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="unzip")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def take(self, upload: Upload, wanted: VersionFrom) -> Stored:
        """Raises `BadRequest` for what is not asked for rightly, the refusals of `Intake.take_files`, and of
        where the files come from."""
        named = [each for each in (wanted.uploads, wanted.source) if each is not None]
        if len(named) != 1:
            raise _not_one("uploads, source")
        if wanted.uploads is not None:
            return await self._take_uploads(upload, wanted.uploads)
        assert wanted.source is not None
        if (wanted.source.s3 is None) == (wanted.source.url is None):
            raise _not_one("source.s3, source.url")
        async with self._intake.directory(upload.tenant) as directory:
            await self._fetch(upload.tenant, wanted, directory)
            return await self._intake.take_files(upload, Parts.found_in(directory.path), directory)

    async def _fetch(self, tenant: TenantId, wanted: VersionFrom, directory: HeldDirectory) -> None:
        assert wanted.source is not None
        limit_s = self._uploads.limits.total_s
        try:
            async with asyncio.timeout(limit_s):
                if wanted.source.s3 is not None:
                    await self._s3.fetch(tenant, wanted.source.s3, directory.path, directory.hold.reach)
                if wanted.source.url is not None:
                    await self._urls.fetch(wanted.source.url, directory.path, directory.hold.reach)
        except TimeoutError:
            raise Timeout(f"The import took longer than {limit_s:g} s.", param="source") from None

    async def _take_uploads(self, upload: Upload, ids: Sequence[UUID]) -> Stored:
        if len(set(ids)) != len(ids):
            raise BadRequest("An upload is named twice.", param="uploads", code="duplicate_parameter")
        rows = [await self._uploads.get(upload.tenant, each) for each in ids]
        before = await self._taken_before(upload, rows)
        if before is not None:
            return before
        _check_finished(rows)
        _check_files(rows)
        async with self._locked(ids), self._intake.directory(upload.tenant) as directory:
            hold = directory.hold
            hold.uploads, hold.upload_bytes = ids, sum(row.num_bytes for row in rows)
            try:
                await self._gather(rows, directory)
                stored = await self._intake.take_files(upload, Parts.found_in(directory.path), directory)
            except ApiError as error:
                if error.status in _CONTENT_REFUSED:
                    await self._uploads.discard(upload.tenant, ids)
                raise
            await self._mark(upload.tenant, ids, stored)
        return stored

    async def _gather(self, rows: Sequence[UploadRow], directory: HeldDirectory) -> None:
        """Makes their files those of the directory, without copying."""
        for row in rows:
            if is_zip(row.file):
                await self._unpack(self._uploads.files.path(row.id), directory)
            else:
                (directory.path / row.file).hardlink_to(self._uploads.files.path(row.id))

    async def _unpack(self, source: Path, directory: HeldDirectory) -> None:
        loop = asyncio.get_running_loop()
        limits: UploadLimits = self._uploads.limits

        def reserve(num_bytes: int) -> None:
            asyncio.run_coroutine_threadsafe(directory.hold.reach(num_bytes), loop).result()

        await loop.run_in_executor(self._threads, unpack, source, directory.path, limits, reserve)

    @asynccontextmanager
    async def _locked(self, ids: Sequence[UUID]) -> AsyncIterator[None]:
        """Nobody writes or takes them meanwhile; a gateway that is killed lets go of them. Raises `Busy`."""
        with ExitStack() as opened:
            with spool_errors():
                for each in ids:
                    file = await asyncio.to_thread(self._uploads.open_file, each)
                    opened.callback(file.close)
            yield

    async def _taken_before(self, upload: Upload, rows: Sequence[UploadRow]) -> Stored | None:
        """The version that these uploads have become already, for a client whose answer was lost."""
        versions = {(row.adapter, row.version) for row in rows}
        if versions == {(None, None)}:
            return None
        if len(versions) > 1 or rows[0].adapter != upload.name:
            raise Conflict("An upload is part of a version already.", param="uploads", code="upload_taken")
        assert rows[0].version is not None
        async with self._database.tenant_reader(upload.tenant) as session:
            line = Line(upload.tenant, self._base_id)
            adapter = await catalog.find_adapter(session, line, upload.name)
            if adapter is not None:
                version = await catalog.find_version(session, adapter.adapter, rows[0].version)
                if version is not None:
                    return Stored(adapter, version, created=False)
        raise no_such_upload()  # deleted since

    async def _mark(self, tenant: TenantId, ids: Sequence[UUID], stored: Stored) -> None:
        async with self._database.tenant_session(tenant) as session:
            name, number = stored.adapter.adapter.name, stored.version.number
            await repository.mark_taken(session, ids, name, number, TAKEN_KEPT)
        for each in ids:
            await asyncio.to_thread(self._uploads.files.remove, each)


def version_from(body: bytes) -> VersionFrom:
    """Raises `BadRequest`."""
    try:
        return msgspec.json.decode(body, type=VersionFrom)
    except (msgspec.MsgspecError, RecursionError) as error:
        refused = refusal_of(error) if isinstance(error, msgspec.MsgspecError) else None
        if isinstance(refused, RequestRefused):
            raise from_refusal(refused) from None
        raise BadRequest("The body is nested too deeply.", code="invalid_value") from None


def _check_finished(rows: Sequence[UploadRow]) -> None:
    for row in rows:
        if row.received < row.num_bytes:
            raise Conflict(
                f"'{row.file}' is not complete: {row.received:,} of {row.num_bytes:,} bytes are here.",
                param="uploads",
                code="upload_unfinished",
            )


def _check_files(rows: Sequence[UploadRow]) -> None:
    files = [row.file for row in rows]
    if any(map(is_zip, files)):
        if len(files) > 1:
            raise BadRequest("A zip holds all files: name it alone.", param="uploads", code="invalid_value")
        return
    if len(set(files)) != len(files):
        raise BadRequest("Two uploads are the same file.", param="uploads", code="duplicate_parameter")
    for name in (CONFIG_PART, WEIGHTS_PART):
        if name not in files:
            raise missing_part(name)


def _not_one(names: str) -> BadRequest:
    return BadRequest(f"Give exactly one of: {names}.", param=names.partition(",")[0], code="invalid_value")
