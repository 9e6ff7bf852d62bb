"""Wire types of aliases."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.aliases.moves import shown, weights_of
from gateway.aliases.spread import MAX_VERSIONS
from gateway.catalog.names import MAX_VERSION
from gateway.models import Alias
from gateway.paging import Page

Version = Annotated[int, Meta(ge=1, le=MAX_VERSION)]
Percent = Annotated[int, Meta(ge=1, le=100)]
Number = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,9}$")]
Weights = Annotated[
    dict[Number, Percent],
    Meta(min_length=1, max_length=MAX_VERSIONS, description="Version → percent; 100 in all."),
]


class AliasIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the alias is to point: either to one `version`, or to `weights`."""

    version: Version | None = None
    weights: Weights | None = None


class AliasOut(msgspec.Struct, frozen=True, kw_only=True):
    """`version` is the one that most of it goes to. `revision` moves with each change; it is the ETag too."""

    id: str  # what to write as `model`: name@alias
    object: Literal["adapter.alias"] = "adapter.alias"
    adapter: str
    alias: str
    version: int
    weights: dict[str, int]
    revision: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, adapter: str, alias: Alias) -> AliasOut:
        return cls(
            id=f"{adapter}@{alias.name}",
            adapter=adapter,
            alias=alias.name,
            version=alias.version,
            weights=shown(weights_of(alias)),
            revision=alias.revision,
            created_at=alias.created_at,
            updated_at=alias.updated_at,
        )


class AliasList(Page[AliasOut], frozen=True, kw_only=True):
    data: list[AliasOut]


class AliasDeleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["adapter.alias.deleted"] = "adapter.alias.deleted"
    deleted: bool = True
