"""The files of an upload: a multipart body straight to disk, at most `_WRITE_BYTES` of it in memory."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from multipart import (
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from gateway.errors import ApiError, BadRequest, BodyTooLarge, RequestTimeout

CONFIG_PART = "adapter_config.json"
WEIGHTS_PART = "adapter_model.safetensors"
ACCEPTANCE_PART = "acceptance.json"
MAX_CONFIG_BYTES = 256 * 1024
MAX_ACCEPTANCE_BYTES = 256 * 1024
MAX_OVERHEAD_BYTES = 64 * 1024
"""Boundaries and part headers around the files."""
_MAX_PART_HEADER_BYTES = 1_024
_WRITE_BYTES = 1 << 20


class UnsupportedMediaType(ApiError):
    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What one upload may take."""

    max_bytes: int  # of the weights part
    idle_s: float  # between two chunks
    total_s: float  # first to last byte

    @property
    def max_body_bytes(self) -> int:
        return sum(self.of_files.values()) + MAX_OVERHEAD_BYTES

    @property
    def of_files(self) -> dict[str, int]:
        """The most bytes of each file."""
        return {
            CONFIG_PART: MAX_CONFIG_BYTES,
            WEIGHTS_PART: self.max_bytes,
            ACCEPTANCE_PART: MAX_ACCEPTANCE_BYTES,
        }


@dataclass(frozen=True, slots=True)
class Parts:
    """The files of one complete upload."""

    config: Path
    weights: Path
    acceptance: Path | None = None  # prompts that it must answer rightly


def boundary_of(content_type: str) -> str:
    """The boundary of a multipart body; raises `UnsupportedMediaType` or `BadRequest`."""
    kind, options = parse_options_header(content_type)
    if kind != "multipart/form-data":
        raise UnsupportedMediaType(
            f"Send multipart/form-data with the parts '{CONFIG_PART}' and '{WEIGHTS_PART}'.",
            param="content-type",
        )
    boundary: str = options.get("boundary", "")
    if not 1 <= len(boundary) <= 70 or not boundary.isascii():
        raise BadRequest(
            "The multipart content type has no valid boundary.",
            param="content-type",
            code="invalid_multipart",
        )
    return boundary


def check_length(length: int | None, limits: UploadLimits) -> None:
    """Refuses a body of `length` bytes (announced, or received so far) that can't be an upload."""
    if length is not None and length > limits.max_body_bytes:
        raise _too_large(WEIGHTS_PART, limits.max_bytes)


async def receive_parts(
    chunks: AsyncIterator[bytes], boundary: str, directory: Path, limits: UploadLimits
) -> Parts:
    """Writes the parts under `directory` as they arrive.

    Raises `BadRequest` (not multipart; a part missing, unknown or twice), `BodyTooLarge`, `RequestTimeout`.
    The caller owns `directory` and removes it, whatever happens here.
    """
    writer = _PartWriter(directory, limits.of_files)
    try:
        async with asyncio.timeout(limits.total_s):
            await _feed(chunks, boundary, writer, limits)
    except TimeoutError:
        raise RequestTimeout(f"The upload took longer than {limits.total_s:g} s.") from None
    finally:
        writer.close()
    return writer.complete()


async def _feed(
    chunks: AsyncIterator[bytes], boundary: str, writer: _PartWriter, limits: UploadLimits
) -> None:
    parser = PushMultipartParser(
        boundary,
        max_header_size=_MAX_PART_HEADER_BYTES,
        max_header_count=8,
        max_segment_count=5,  # a fourth part is answered by its name
    )
    try:
        with parser:
            received = 0
            while chunk := await _next_chunk(chunks, limits.idle_s):
                received += len(chunk)
                check_length(received, limits)
                for event in parser.parse(chunk):
                    await writer.take(event)
    except ParserLimitReached as error:
        raise BadRequest(f"The multipart body is refused: {error}.", code="invalid_multipart") from None
    except MultipartError as error:
        message = f"The body is not valid multipart/form-data: {error}."
        raise BadRequest(message, code="invalid_multipart") from None


async def _next_chunk(chunks: AsyncIterator[bytes], idle_s: float) -> bytes:
    """The next chunk, or b"" at the end."""
    try:
        async with asyncio.timeout(idle_s):
            return await anext(chunks, b"")
    except TimeoutError:
        raise RequestTimeout(f"Nothing of the upload arrived for {idle_s:g} s.") from None


class _PartWriter:
    """Takes parser events and writes each part to its file, buffered, off the event loop."""

    def __init__(self, directory: Path, caps: Mapping[str, int]) -> None:
        self._directory = directory
        self._caps = caps
        self._complete: set[str] = set()
        self._seen: set[str] = set()
        self._name = ""
        self._size = 0
        self._file: BinaryIO | None = None
        self._buffer = bytearray()

    async def take(self, event: MultipartSegment | bytes | None) -> None:
        if isinstance(event, MultipartSegment):
            self._begin(event.name or "")
        elif event is None:
            await self._finish()
        else:
            await self._write(event)

    def complete(self) -> Parts:
        """The files, once all parts have arrived; raises `BadRequest` naming the missing one."""
        for name in (CONFIG_PART, WEIGHTS_PART):
            if name not in self._complete:
                raise BadRequest(
                    f"Missing required part: '{name}'.", param=name, code="missing_required_parameter"
                )
        acceptance = self._directory / ACCEPTANCE_PART if ACCEPTANCE_PART in self._complete else None
        return Parts(self._directory / CONFIG_PART, self._directory / WEIGHTS_PART, acceptance)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, name: str) -> None:
        if name not in self._caps:
            shown = name[:64]
            raise BadRequest(
                f"Unknown part: '{shown}'. An upload has the parts '{CONFIG_PART}' and '{WEIGHTS_PART}', "
                f"and may have '{ACCEPTANCE_PART}'.",
                param=shown,
                code="unknown_parameter",
            )
        if name in self._seen:
            raise BadRequest(f"The part '{name}' is there twice.", param=name, code="duplicate_parameter")
        self._seen.add(name)
        self._name = name
        self._size = 0
        # `name` is one of ours by now: nothing of the client's goes into a path.
        self._file = (self._directory / name).open("xb", buffering=0)

    async def _write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._caps[self._name]:
            raise _too_large(self._name, self._caps[self._name])
        self._buffer += data
        if len(self._buffer) >= _WRITE_BYTES:
            await self._flush()

    async def _finish(self) -> None:
        await self._flush()
        self.close()
        self._complete.add(self._name)

    async def _flush(self) -> None:
        assert self._file is not None
        data, self._buffer = self._buffer, bytearray()
        await asyncio.to_thread(_write_all, self._file, data)


def _write_all(file: BinaryIO, data: bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _too_large(part: str, max_bytes: int) -> BodyTooLarge:
    size = f"{max_bytes / 2**20:g} MiB" if math.log2(max_bytes) >= 20 else f"{max_bytes:,} bytes"
    return BodyTooLarge(f"The part '{part}' is larger than {size}.", param=part, code="request_too_large")
