"""Adapters that lie in a bucket of the operator's choice: which folders a tenant may name, their files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import structlog

from adapters.store import (
    Denied,
    InvalidPath,
    NotFound,
    ObjectStore,
    StoreError,
    Unavailable,
    check_path,
    open_store,
)
from gateway.catalog.parts import (
    ACCEPTANCE_PART,
    CONFIG_PART,
    WEIGHTS_PART,
    Reach,
    UploadLimits,
    too_large,
)
from gateway.errors import BadRequest, Forbidden, Unprocessable
from gateway.errors import Unavailable as PassingFault
from gateway.principal import TenantId

log = structlog.get_logger(__name__)

PARAM: Final = "source.s3"
TENANT: Final = "{tenant}"


@dataclass(frozen=True, slots=True)
class AllowedPrefix:
    """`s3://bucket/prefix[?endpoint=…&region=…]`; `{tenant}` stands for the id of the tenant that asks."""

    bucket: str
    prefix: str
    options: str

    @classmethod
    def of(cls, text: str) -> AllowedPrefix:
        """Raises ValueError."""
        parts = urlsplit(text)
        prefix = parts.path.strip("/")
        if parts.scheme != "s3" or not parts.netloc:
            raise ValueError(f"an S3 prefix for imports is s3://bucket/prefix/, unlike {text!r}")
        try:
            if prefix:
                check_path(prefix.replace(TENANT, "x"))
        except InvalidPath as error:
            raise ValueError(str(error)) from None
        return cls(parts.netloc, prefix, parts.query)

    def holds(self, tenant: TenantId, bucket: str, path: str) -> bool:
        prefix = self.prefix.replace(TENANT, str(tenant))
        return bucket == self.bucket and (not prefix or path == prefix or path.startswith(f"{prefix}/"))


class S3Source:
    """Fetches in threads of its own: a store that hangs must hold up nothing else."""

    def __init__(
        self, allowed: tuple[AllowedPrefix, ...], limits: UploadLimits, threads: ThreadPoolExecutor
    ) -> None:
        self._allowed = allowed
        self._limits = limits
        self.threads = threads

    @classmethod
    def of(cls, setting: str, limits: UploadLimits, threads: ThreadPoolExecutor) -> S3Source:
        """From a comma-separated setting; "" allows nothing. Raises ValueError."""
        listed = [each.strip() for each in setting.split(",") if each.strip()]
        return cls(tuple(AllowedPrefix.of(each) for each in listed), limits, threads)

    async def fetch(self, tenant: TenantId, url: str, directory: Path, reach: Reach) -> None:
        """Writes the folder's files into `directory`. Raises `Forbidden`, `BadRequest`, `BodyTooLarge`,
        `Unprocessable`, `Unavailable` of the store, OSError, and what `reach` raises."""
        address = self._allowed_address(tenant, url)
        run = asyncio.get_running_loop().run_in_executor
        with _told():
            store = await run(self.threads, open_store, address)
            sizes = await run(self.threads, _sizes, store)
            caps = self._limits.of_files
            for name, num_bytes in sizes.items():
                if num_bytes > caps[name]:
                    raise too_large(name, caps[name])
            await reach(sum(sizes.values()))
            for name, num_bytes in sizes.items():
                await run(self.threads, store.fetch_file, name, directory / name)
                if (directory / name).stat().st_size != num_bytes:
                    raise Unavailable(f"{name} was replaced while it was read")

    def _allowed_address(self, tenant: TenantId, url: str) -> str:
        bucket, path = _folder(url)
        for each in self._allowed:
            if each.holds(tenant, bucket, path):
                return f"s3://{bucket}/{path}?{each.options}" if each.options else f"s3://{bucket}/{path}"
        raise Forbidden(
            "The operator of this platform allows no import from there.",
            param=PARAM,
            code="import_not_allowed",
        )


@contextmanager
def _told() -> Iterator[None]:
    """What the store says, as the tenant hears it."""
    try:
        yield
    except NotFound as error:
        raise Unprocessable(
            f"The source is not complete: {error}.", param=PARAM, code="source_incomplete"
        ) from None
    except Denied:
        message = "The platform's credentials may not read the source."
        raise Unprocessable(message, param=PARAM, code="source_denied") from None
    except StoreError as error:
        log.warning("import_failed", reason=str(error))
        raise PassingFault("The source can't be read now. Try again.", code="source_unavailable") from error


def _sizes(store: ObjectStore) -> dict[str, int]:
    """Of the files of ours. Raises `NotFound` for one that must be there."""
    sizes = {name: store.size(name) for name in (CONFIG_PART, WEIGHTS_PART)}
    with suppress(NotFound):
        sizes[ACCEPTANCE_PART] = store.size(ACCEPTANCE_PART)
    return sizes


def _folder(url: str) -> tuple[str, str]:
    """(bucket, path). Raises `BadRequest`."""
    parts = urlsplit(url)
    form = parts.scheme == "s3" and parts.netloc and not parts.query and not parts.fragment
    with suppress(InvalidPath):
        if form:
            return parts.netloc, check_path(parts.path.strip("/"))
    raise BadRequest(
        "The source must be s3://bucket/prefix/, of letters, digits, '.', '_' and '-'.",
        param=PARAM,
        code="invalid_value",
    )
