"""The object store as a bucket of S3, or of anything that speaks its protocol."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError

from adapters.local_files import replacing, translated
from adapters.store import (
    Corrupt,
    Denied,
    DiskFull,
    InvalidPath,
    NoStore,
    NotFound,
    StoreError,
    Unavailable,
    Unfinished,
    check_path,
)

CONNECT_TIMEOUT_S: Final = 3.0
READ_TIMEOUT_S: Final = 10.0  # a server that hangs holds a loader for so long, times the attempts
MAX_ATTEMPTS: Final = 3
PART_BYTES: Final = 8 * 1024 * 1024
MAX_PARALLEL: Final = 4  # ranges of one fetch, parts of one put
WHEN_SUPPORTED: Final = "when_supported"
WHEN_REQUIRED: Final = "when_required"
ENDPOINT_VARIABLE: Final = "MOTET_STORE_ENDPOINT_URL"

SHA256: Final = "motet-sha256"
"""Metadata of each object: the digest of the file that was put, for whoever reads the bucket without us."""

_DENIED: Final = frozenset(
    {
        "AccessDenied",
        "403",
        "401",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
    }
)
_NOT_FOUND: Final = frozenset({"NoSuchKey", "404", "NotFound", "NoSuchUpload"})
_FULL: Final = frozenset({"InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "EntityTooLarge"})
_CHANGED: Final = frozenset({"PreconditionFailed", "412"})
_NO_RANGE: Final = frozenset({"InvalidRange", "416"})


class NoRange(Unavailable):
    """The object ends before the range begins: it has no bytes, or was replaced by a shorter one."""


def open_s3(url: str) -> S3Store:
    """See `store.open_store`. Credentials come by boto3's own chain. Raises ValueError."""
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    if unknown := sorted(set(options) - {"endpoint", "region", "checksums"}):
        known = "endpoint, region and checksums"
        raise ValueError(f"a store's URL has the options {known}, not {', '.join(unknown)}")
    checksums = options.get("checksums", [WHEN_SUPPORTED])[0]
    if checksums not in (WHEN_SUPPORTED, WHEN_REQUIRED):
        raise ValueError(f"checksums of a store's URL is {WHEN_SUPPORTED} or {WHEN_REQUIRED}")
    if not parts.netloc:
        raise ValueError(f"a store's URL names a bucket: s3://bucket/prefix, unlike {url!r}")
    prefix = parts.path.strip("/")
    if prefix:
        try:
            check_path(prefix)
        except InvalidPath as error:
            raise ValueError(str(error)) from None
    endpoint = options.get("endpoint", [os.environ.get(ENDPOINT_VARIABLE) or None])[0]
    region = options.get("region", [None])[0]
    return S3Store(parts.netloc, prefix, endpoint=endpoint, region=region, checksums=checksums)


@dataclass(frozen=True, slots=True)
class _Object:
    key: str
    size: int
    etag: str
    modified: datetime


class S3Store:
    """Objects are keys below `prefix`. One client, which boto3 lets threads share.

    Checksums: boto3 sends one (CRC-32) with each put and each part, which the server checks before it keeps
    anything, unless `checksums` is `when_required`, for servers that don't know those headers. Ranges come
    without one; what is fetched is held against the packed file's own (`packed.verify`).
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        endpoint: str | None,
        region: str | None,
        checksums: str = WHEN_SUPPORTED,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client: Any = boto3.session.Session().client(
            "s3",
            endpoint_url=endpoint,
            region_name=region
            or os.environ.get("AWS_REGION")
            or os.environ.get("AWS_DEFAULT_REGION")
            or "us-east-1",
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"total_max_attempts": MAX_ATTEMPTS, "mode": "standard"},
                s3={"addressing_style": "path" if endpoint else "auto"},
                max_pool_connections=32,
                request_checksum_calculation=checksums,
                response_checksum_validation=checksums,
            ),
        )
        self._transfer = TransferConfig(
            multipart_threshold=PART_BYTES,
            multipart_chunksize=PART_BYTES,
            max_concurrency=MAX_PARALLEL,
            preferred_transfer_client="classic",
        )

    def put_file(self, source: Path, path: str) -> None:
        key = self._key(path)
        with translated(str(source)):
            size, sha256 = source.stat().st_size, _sha256(source)
        with translated(str(source)), _translated(path):
            self._client.upload_file(
                str(source),
                self._bucket,
                key,
                Config=self._transfer,
                ExtraArgs={"Metadata": {SHA256: sha256}},
            )
        if (kept := self._head(path).size) != size:
            raise Corrupt(f"{path}: the store kept {kept} bytes of {size}")

    def fetch_file(self, path: str, target: Path, *, durable: bool = True) -> None:
        found, begun = self._begin(path)
        with replacing(target, durable=durable) as temporary, temporary.open("wb") as file:
            file.truncate(found.size)
            self._fetch_ranges(found, begun, path, file.fileno())

    def size(self, path: str) -> int:
        return self._head(path).size

    def exists(self, path: str) -> bool:
        try:
            self._head(path)
        except NotFound:
            return False
        return True

    def age_s(self, path: str) -> float:
        return (datetime.now(UTC) - self._head(path).modified).total_seconds()

    def delete(self, path: str) -> None:
        with _translated(path), contextlib.suppress(NotFound):
            self._client.delete_object(Bucket=self._bucket, Key=self._key(path))

    def unfinished(self, older_than_s: float) -> Iterator[Unfinished]:
        with _translated(self._bucket):
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                for item in page.get("Uploads", ()):
                    age_s = (datetime.now(UTC) - item["Initiated"]).total_seconds()
                    if age_s > older_than_s:
                        path = str(item["Key"]).removeprefix(self._prefix)
                        yield Unfinished(path, str(item["UploadId"]), age_s)

    def discard(self, put: Unfinished) -> None:
        with _translated(put.path), contextlib.suppress(NotFound):
            self._client.abort_multipart_upload(
                Bucket=self._bucket, Key=self._key(put.path), UploadId=put.token
            )

    def list(self, prefix: str) -> Iterator[str]:
        start = self._key(prefix.rstrip("/")) + "/" if prefix else self._prefix
        with _translated(prefix or self._bucket):
            for page in self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=start
            ):
                for item in page.get("Contents", ()):
                    yield item["Key"].removeprefix(self._prefix)

    def _key(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _head(self, path: str) -> _Object:
        key = self._key(path)
        with _translated(path):
            answer = self._client.head_object(Bucket=self._bucket, Key=key)
            return _Object(key, int(answer["ContentLength"]), str(answer["ETag"]), answer["LastModified"])

    def _begin(self, path: str) -> tuple[_Object, Any]:
        """Asks for the first range, whose headers tell of the whole: no trip to ask for the size first. The
        body that was begun, or None for an object without bytes, which has no range."""
        key = self._key(path)
        wanted = f"bytes=0-{PART_BYTES - 1}"
        try:
            with _translated(path):
                answer = self._client.get_object(Bucket=self._bucket, Key=key, Range=wanted)
        except NoRange:
            return self._head(path), None
        size = int(str(answer.get("ContentRange", "")).rpartition("/")[2] or answer["ContentLength"])
        return _Object(key, size, str(answer["ETag"]), answer["LastModified"]), answer["Body"]

    def _fetch_ranges(self, found: _Object, begun: Any, path: str, descriptor: int) -> None:
        """Ranges in parallel, each written to its place; an object replaced meanwhile is an error, not a
        mixture. `begun` is the body of the first."""
        later = range(PART_BYTES, found.size, PART_BYTES)
        if not later:
            self._fetch_range(found, path, 0, descriptor, begun)
            return
        with ThreadPoolExecutor(MAX_PARALLEL, thread_name_prefix="motet-fetch") as pool:
            jobs = [pool.submit(self._fetch_range, found, path, 0, descriptor, begun)]
            jobs += [pool.submit(self._fetch_range, found, path, start, descriptor) for start in later]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _fetch_range(self, found: _Object, path: str, start: int, descriptor: int, begun: Any = None) -> None:
        """One range, of which `begun` is the answer that is coming already. A connection that breaks midway
        is tried again: boto3 retries only up to the first byte."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                data = self._read_range(found, path, start, min(start + PART_BYTES, found.size), begun)
                break
            except Unavailable:
                begun = None
                if attempt == MAX_ATTEMPTS:
                    raise
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, memoryview(data)[written:], start + written)

    def _read_range(self, found: _Object, path: str, start: int, end: int, begun: Any) -> bytes:
        if start == end:
            return b""
        wanted = f"bytes={start}-{end - 1}"
        with _translated(path):
            if begun is None:
                answer = self._client.get_object(
                    Bucket=self._bucket, Key=found.key, Range=wanted, IfMatch=found.etag
                )
                begun = answer["Body"]
            data: bytes = begun.read()
        if len(data) != end - start:
            raise Unavailable(f"{path}: {len(data)} bytes came of {end - start}")
        return data


@contextlib.contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise _store_error(error, path) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise Denied(f"{path}: {error}") from error
    except (BotoCoreError, Boto3Error) as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, ClientError):  # boto3's transfer wraps what the server said
            raise _store_error(cause, path) from error
        raise Unavailable(f"{path}: {error}") from error


def _store_error(error: ClientError, path: str) -> StoreError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in _NOT_FOUND:
        return NotFound(f"there is no {path}")
    if code == "NoSuchBucket":
        return NoStore(f"{path}: there is no such bucket")
    if code in _FULL or status == 507:
        return DiskFull(f"{path}: the store answered {code or status}")
    if code in _DENIED or status in (401, 403):
        return Denied(f"{path}: the store answered {code}")
    if code in _NO_RANGE:
        return NoRange(f"{path} was replaced while it was read")
    if code in _CHANGED:
        return Unavailable(f"{path} was replaced while it was read")
    return Unavailable(f"{path}: the store answered {code or status}")


def _sha256(source: Path) -> str:
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
