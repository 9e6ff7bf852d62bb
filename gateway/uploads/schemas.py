"""What the routes of uploads answer with, and how a version is asked for that does not come in the body."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec

from gateway.models import Upload
from gateway.paging import Page

MAX_UPLOADS = 3
MAX_SOURCE_CHARS = 2_048


class UploadOut(msgspec.Struct, frozen=True, kw_only=True):
    """A file on its way in."""

    id: str
    object: Literal["upload"] = "upload"
    file: str  # adapter_config.json, adapter_model.safetensors, acceptance.json, or the name of a zip
    bytes: int  # of the whole file
    received: int  # of these, so many are safe
    finished: bool
    sha256: str | None  # announced, of the whole file
    created_at: datetime
    expires_at: datetime  # it is deleted then, unless more comes or it becomes part of a version

    @classmethod
    def of(cls, upload: Upload) -> UploadOut:
        return cls(
            id=str(upload.id),
            file=upload.file,
            bytes=upload.num_bytes,
            received=upload.received,
            finished=upload.received == upload.num_bytes,
            sha256=upload.sha256,
            created_at=upload.created_at,
            expires_at=upload.expires_at,
        )


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A folder that the gateway fetches the files from; exactly one of its fields."""

    s3: Annotated[str, msgspec.Meta(max_length=MAX_SOURCE_CHARS)] | None = None  # s3://bucket/prefix/
    url: Annotated[str, msgspec.Meta(max_length=MAX_SOURCE_CHARS)] | None = None  # https://host/path/


class VersionFrom(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a version's files are; exactly one of its fields."""

    uploads: Annotated[list[UUID], msgspec.Meta(min_length=1, max_length=MAX_UPLOADS)] | None = None
    source: Source | None = None


class UploadList(Page[UploadOut], frozen=True, kw_only=True):
    data: list[UploadOut]
