"""One request's bytes on their way to an upload's file: durable before an offset is told, whatever happens.

    below `offset`      durable, and in the row: what HEAD tells
    `offset`..`end`     written since; dropped by the next writer unless a checkpoint made it durable
    buffered            at most `WRITE_BYTES`

With a checksum nothing of the request counts before all of it is there and right. While the client is silent
the file is not locked, so that a connection that died unnoticed keeps nobody from going on with another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import structlog

from gateway.catalog.parts import UploadLimits, too_large
from gateway.errors import ApiError, RequestTimeout
from gateway.uploads.files import InUse, OpenFile
from gateway.uploads.protocol import Busy, Checksum, ChecksumMismatch

log = structlog.get_logger(__name__)

WRITE_BYTES: Final = 1 << 20
CHECKPOINT_BYTES: Final = 16 << 20
"""Of what a killed gateway may lose of a request without a checksum."""
SILENCE_S: Final = 2.0
"""Without a byte, after which the file is left to others."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request begins to write, and what it may write."""

    file: str
    offset: int
    length: int  # of the whole file

    @property
    def most(self) -> int:
        return self.length - self.offset


class Progress(Protocol):
    """The upload's row, as its writer of the moment sees it."""

    async def advance(self, received: int) -> None:
        """So many bytes are durable. Raises `Conflict` when another request writes it now, or it is gone."""
        ...

    async def require_still(self) -> None:
        """Raises `Conflict` when another request has written meanwhile, or it is gone."""
        ...


Result = TypeVar("Result")


class Arrival:
    """Of one request. `file` is open and locked; who opened it closes it. Raises OSError for the disk."""

    def __init__(
        self,
        file: OpenFile,
        place: Place,
        progress: Progress,
        limits: UploadLimits,
        threads: ThreadPoolExecutor,
        checksum: Checksum | None = None,
    ) -> None:
        self._file = file
        self._place = place
        self._progress = progress
        self._limits = limits
        self._threads = threads
        self._checksum = checksum
        self._buffer = bytearray()
        self._written = place.offset
        self._durable = place.offset
        self._locked = True

    async def take(self, chunks: AsyncIterator[bytes]) -> int:
        """The upload's offset after it. Raises `BodyTooLarge`, `ChecksumMismatch`, `RequestTimeout`, `Busy`,
        `Conflict`, and what `chunks` raises; what came until then stays, unless it had a checksum."""
        await self._in_thread(lambda: self._file.cut(self._place.offset))
        try:
            async with asyncio.timeout(self._limits.total_s):
                await self._receive(chunks)
        except TimeoutError:
            await self._keep()
            raise RequestTimeout(f"The request took longer than {self._limits.total_s:g} s.") from None
        except Exception:
            await self._keep()
            raise
        await self._finish()
        return self._durable

    async def _receive(self, chunks: AsyncIterator[bytes]) -> None:
        while chunk := await self._next(chunks):
            if self._written + len(self._buffer) + len(chunk) > self._place.length:
                raise too_large(self._place.file, self._place.length)
            if self._checksum is not None:
                self._checksum.update(chunk)
            self._buffer += chunk
            if len(self._buffer) >= WRITE_BYTES:
                await self._write()
            if self._checksum is None and self._written - self._durable >= CHECKPOINT_BYTES:
                await self._checkpoint()

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes:
        """The next chunk, or b"" at the end."""
        coming = asyncio.ensure_future(_first(chunks))
        try:
            done, _ = await asyncio.wait({coming}, timeout=min(SILENCE_S, self._limits.idle_s))
            if not done:
                await self._let_go()
                done, _ = await asyncio.wait({coming}, timeout=max(0.0, self._limits.idle_s - SILENCE_S))
            if not done:
                raise RequestTimeout(f"Nothing of the upload arrived for {self._limits.idle_s:g} s.")
            if not self._locked:
                await self._lock_again()
            return coming.result()
        finally:
            if not coming.cancel() and not coming.cancelled():
                coming.exception()  # seen, where an error of ours goes before it

    async def _let_go(self) -> None:
        if self._checksum is None:
            await self._write()
            await self._checkpoint()
        self._file.unlock()
        self._locked = False

    async def _lock_again(self) -> None:
        """Raises `Busy` or `Conflict`: another request went on meanwhile."""
        try:
            self._file.lock()
        except InUse:
            raise Busy(f"'{self._place.file}' is being written by another request.") from None
        self._locked = True
        await self._progress.require_still()

    async def _finish(self) -> None:
        await self._write()
        if self._checksum is not None and not self._checksum.holds:
            await self._in_thread(lambda: self._file.cut(self._place.offset))
            raise ChecksumMismatch(
                f"'{self._place.file}': the {self._written - self._place.offset:,} bytes from byte "
                f"{self._place.offset:,} on have not the {self._checksum.algorithm} that was announced. "
                "Send them again.",
                param=self._place.file,
                headers={"upload-offset": str(self._place.offset)},
            )
        await self._checkpoint()

    async def _keep(self) -> None:
        """Of a request that broke off: what can be kept is."""
        if self._checksum is not None or not self._locked:
            return
        try:
            await self._write()
            await self._checkpoint()
        except (OSError, ApiError) as error:
            log.info("upload_rest_not_kept", file=self._place.file, reason=str(error))

    async def _write(self) -> None:
        if self._buffer:
            data, self._buffer = self._buffer, bytearray()
            await self._in_thread(lambda: self._file.write(data, self._written))
            self._written += len(data)

    async def _checkpoint(self) -> None:
        if self._written > self._durable:
            await self._in_thread(self._file.sync)
            await self._progress.advance(self._written)
            self._durable = self._written

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        # Waited for even when cancelled: the file must not be closed, or left to another, under a write.
        job = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await asyncio.wait({job})
            raise


async def _first(chunks: AsyncIterator[bytes]) -> bytes:
    return await anext(chunks, b"")
