"""tus 1.0 (https://tus.io/protocols/resumable-upload): its headers, read strictly, and what it answers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final

from gateway.catalog.parts import (
    UnsupportedMediaType,
    UploadLimits,
    too_large,
)
from gateway.errors import ApiError, BadRequest, Conflict

VERSION: Final = "1.0.0"
EXTENSIONS: Final = "creation,creation-with-upload,expiration,checksum,termination"
BYTES: Final = "application/offset+octet-stream"
MAX_METADATA: Final = 2_048  # characters of Upload-Metadata
ALGORITHMS: Final = ("sha1", "sha256")
_DIGITS: Final = re.compile(r"[0-9]{1,15}")
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ZIP: Final = re.compile(r"[^/\\\x00-\x1f]{1,200}\.zip")

Headers = Mapping[str, str]


class UnsupportedTus(ApiError):
    status = 412
    type = "invalid_request_error"
    code = "unsupported_tus_version"


class Busy(ApiError):
    """Another request writes the upload, or takes it."""

    status = 423
    type = "invalid_request_error"
    code = "upload_locked"


class ChecksumMismatch(ApiError):
    status = 460
    type = "invalid_request_error"
    code = "checksum_mismatch"


@dataclass(frozen=True, slots=True)
class Announced:
    """A file that is about to be uploaded."""

    file: str
    num_bytes: int
    told: str  # Upload-Metadata as it was written
    sha256: str | None = None


class Checksum:
    """Of the bytes of one request, as announced."""

    def __init__(self, algorithm: str, wanted: bytes) -> None:
        self.algorithm = algorithm
        self._wanted = wanted
        self._hash = hashlib.new(algorithm, usedforsecurity=False)

    def update(self, data: bytes | bytearray) -> None:
        self._hash.update(data)

    @property
    def holds(self) -> bool:
        return self._hash.digest() == self._wanted


def is_zip(file: str) -> bool:
    return _ZIP.fullmatch(file) is not None


def require_version(headers: Headers) -> None:
    """Raises `UnsupportedTus`."""
    if headers.get("tus-resumable") != VERSION:
        raise UnsupportedTus(
            f"Send the header Tus-Resumable: {VERSION}.",
            param="tus-resumable",
            headers={"tus-version": VERSION},
        )


def announced(headers: Headers, limits: UploadLimits) -> Announced:
    """What a creation announces. Raises `BadRequest`, and `BodyTooLarge` for more than that kind of file may
    have."""
    if "upload-defer-length" in headers:
        raise _bad("upload-defer-length", "A length that is told later is not supported: send Upload-Length.")
    if "upload-concat" in headers:
        raise _bad("upload-concat", "Concatenation is not supported: one upload is one file.")
    length = _number(headers, "upload-length")
    told = headers.get("upload-metadata", "")
    metadata = parse_metadata(told)
    file = metadata.get("filename", "")
    caps = limits.of_files
    if file not in caps and not is_zip(file):
        known = ", ".join(f"'{name}'" for name in caps)
        raise _bad(
            "upload-metadata", f"Upload-Metadata needs a filename: one of {known}, or a name ending in .zip."
        )
    most = limits.max_body_bytes if is_zip(file) else caps[file]
    if length > most:
        raise too_large(file, most)
    if length < 1:
        raise _bad("upload-length", f"'{file}' is empty.")
    sha256 = metadata.get("sha256")
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise _bad(
            "upload-metadata", "sha256 in Upload-Metadata must be 64 hexadecimal digits in lower case."
        )
    return Announced(file, length, told, sha256)


def parse_metadata(text: str) -> dict[str, str]:
    """`key base64,key base64`; raises `BadRequest`. Keys that mean nothing here are kept for the client."""
    if len(text) > MAX_METADATA:
        raise _bad("upload-metadata", f"Upload-Metadata is longer than {MAX_METADATA:,} characters.")
    found: dict[str, str] = {}
    for pair in text.split(",") if text else []:
        key, _, value = pair.strip().partition(" ")
        if not _KEY.fullmatch(key) or key in found:
            raise _bad(
                "upload-metadata",
                "Upload-Metadata must be pairs of a key, once each, and its value in base64.",
            )
        try:
            found[key] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, ValueError):
            raise _bad(
                "upload-metadata", f"The value of '{key}' in Upload-Metadata is not UTF-8 in base64."
            ) from None
    return found


def require_bytes(headers: Headers) -> None:
    """Raises `UnsupportedMediaType`."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != BYTES:
        raise UnsupportedMediaType(f"Send the bytes as {BYTES}.", param="content-type")


def offset_of(headers: Headers) -> int:
    """Raises `BadRequest`."""
    return _number(headers, "upload-offset")


def checksum_of(headers: Headers) -> Checksum | None:
    """Raises `BadRequest`."""
    given = headers.get("upload-checksum")
    if given is None:
        return None
    algorithm, _, text = given.strip().partition(" ")
    if algorithm not in ALGORITHMS:
        raise _bad(
            "upload-checksum",
            f"Upload-Checksum must use one of: {', '.join(ALGORITHMS)}.",
            code="unsupported_checksum",
        )
    try:
        wanted = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        wanted = b""
    if len(wanted) != hashlib.new(algorithm, usedforsecurity=False).digest_size:
        raise _bad("upload-checksum", f"Upload-Checksum holds no {algorithm} in base64.")
    return Checksum(algorithm, wanted)


def require_offset(file: str, given: int, received: int) -> None:
    """Raises `Conflict`, with the right one."""
    if given != received:
        raise Conflict(
            f"'{file}' goes on at byte {received:,}, not at {given:,}.",
            param="upload-offset",
            code="wrong_offset",
            headers={"upload-offset": str(received)},
        )


def places(received: int, expires_at: datetime) -> dict[str, str]:
    """The headers that tell how far an upload is."""
    return {
        "tus-resumable": VERSION,
        "upload-offset": str(received),
        "upload-expires": format_datetime(expires_at.astimezone(UTC), usegmt=True),
    }


def options(limits: UploadLimits) -> dict[str, str]:
    """What this server can do."""
    return {
        "tus-resumable": VERSION,
        "tus-version": VERSION,
        "tus-extension": EXTENSIONS,
        "tus-max-size": str(limits.max_body_bytes),
        "tus-checksum-algorithm": ",".join(ALGORITHMS),
    }


def _number(headers: Headers, name: str) -> int:
    given = headers.get(name, "")
    if not _DIGITS.fullmatch(given):
        raise _bad(name, f"The header {name.title()} must be a whole number of bytes.")
    return int(given)


def _bad(param: str, message: str, **more: Any) -> BadRequest:
    return BadRequest(message, param=param, **{"code": "invalid_header", **more})
