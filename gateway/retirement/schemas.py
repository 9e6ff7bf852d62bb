"""Wire types of restoring and purging."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.catalog.schemas import VersionOut


class RestoreIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`aliases`: those that pointed to it when it was retired point to it again, as far as they are free."""

    aliases: bool = False


class RestoredOut(msgspec.Struct, frozen=True, kw_only=True):
    """`versions` are back, as they were. Aliases: `aliases` point to them again; `aliases_left` did when they
    were retired and don't now, because nobody asked, or because they point elsewhere."""

    id: str  # name@3, or the name of the adapter
    object: Literal["adapter.restored"] = "adapter.restored"
    versions: list[VersionOut]
    gone: list[int]  # retired, but their bytes are gone
    aliases: dict[str, int]
    aliases_left: dict[str, int]


class PurgeIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`confirm` is what is to be purged, typed: `name@3`, or the adapter's name."""

    confirm: Annotated[str, Meta(max_length=80)]


class ReplicaPurgeOut(msgspec.Struct, frozen=True, kw_only=True):
    replica: UUID
    state: Literal["held", "away", "purged", "unverified", "gone"]
    changed_at: datetime


class VersionPurgeOut(msgspec.Struct, frozen=True, kw_only=True):
    """`kept`: the version has no bytes of its own any more, but others of the tenant, `kept_for`, are of the
    same content, whose bytes stay until they end, too."""

    version: int
    artefact: str
    state: Literal["purging", "purged", "kept"]
    kept_for: list[str]
    object_gone_at: datetime | None
    purged_at: datetime | None
    replicas: list[ReplicaPurgeOut]


class PurgeOut(msgspec.Struct, frozen=True, kw_only=True):
    """`versions`: at most 200, those under way first; `num_…` count all."""

    id: str
    object: Literal["adapter.purge"] = "adapter.purge"
    state: Literal["purging", "purged"]
    num_purging: int
    num_purged: int
    num_kept: int
    versions: list[VersionPurgeOut]
