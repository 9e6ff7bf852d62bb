"""What the catalog's routes answer with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from gateway.catalog.allowed import AdapterAction, VersionAction, Viewer
from gateway.catalog.repository import AdapterRow
from gateway.catalog.service import Model
from gateway.models import AdapterVersion
from gateway.paging import Cut, Page

Tier = Literal["device", "host", "disk", "store"]


class ModelOut(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's model object; `parent` names the base of an adapter."""

    id: str
    object: Literal["model"] = "model"
    created: int  # Unix seconds
    owned_by: str
    parent: str | None

    @classmethod
    def of(cls, model: Model) -> ModelOut:
        created = int(model.created.timestamp())
        return cls(id=model.id, created=created, owned_by=model.owned_by, parent=model.parent)


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's list. `has_more`: ask again with `after`, the last entry's id."""

    object: Literal["list"] = "list"
    data: list[ModelOut]
    has_more: bool

    @classmethod
    def of(cls, found: Sequence[Model], limit: int) -> ModelList:
        """Of up to `limit` + 1 models."""
        return cls(data=[ModelOut.of(model) for model in found[:limit]], has_more=len(found) > limit)


class VersionOut(msgspec.Struct, frozen=True, kw_only=True):
    """One uploaded set of weights. `can`: what whoever asks may do with it."""

    id: str  # what to write as `model`: name@number
    object: Literal["adapter.version"] = "adapter.version"
    adapter: str
    version: int
    state: str  # uploaded | proving | ready | rejected | retired
    reason: str | None  # why it was rejected
    aliases: list[str]  # that point to this version, or of which it has a part
    base: str
    digest: str  # of the content: the same for the same config and tensors
    artefact: str  # what replicas and metrics know it by
    ranks: list[int]  # that occur in it, ascending
    targets: list[str]  # linear layers that it changes
    num_modules: int
    num_parameters: int
    bytes: int  # packed, as stored
    created_at: datetime
    retired_at: datetime | None  # it does not resolve
    purges_at: datetime | None  # of a retired one: until then it can be restored
    lost_at: datetime | None  # the store has lost its object: upload it again
    can: list[VersionAction]

    @classmethod
    def of(cls, adapter: AdapterRow, version: AdapterVersion, base: str, viewer: Viewer) -> VersionOut:
        name, number = adapter.adapter.name, version.number
        return cls(
            id=f"{name}@{number}",
            adapter=name,
            version=number,
            state=version.state,
            reason=version.reason,
            aliases=sorted(alias for alias, versions in adapter.parts.items() if number in versions),
            base=base,
            digest=version.content_digest,
            artefact=version.artefact,
            ranks=version.manifest["ranks"],
            targets=version.manifest["targets"],
            num_modules=version.manifest["num_modules"],
            num_parameters=version.manifest["num_parameters"],
            bytes=version.num_bytes,
            created_at=version.created_at,
            retired_at=version.retired_at,
            purges_at=version.purges_at,
            lost_at=version.lost_at,
            can=viewer.can_version(name, version),
        )


class VersionList(Page[VersionOut], frozen=True, kw_only=True):
    data: list[VersionOut]
    next: int | None  # value of `after` for the next page

    @classmethod
    def of(cls, adapter: AdapterRow, cut: Cut[AdapterVersion], base: str, viewer: Viewer) -> VersionList:
        return cut.fill(
            cls,
            lambda version: VersionOut.of(adapter, version, base, viewer),
            next=cut.rows[-1].number if cut.has_more else None,
        )


class AdapterOut(msgspec.Struct, frozen=True, kw_only=True):
    """A name, and the versions it stands for. `can`: what whoever asks may do with it."""

    id: str  # the name
    object: Literal["adapter"] = "adapter"
    name: str
    base: str
    aliases: dict[str, int]  # alias → version (the one with most); `live`: what the bare name answers with
    latest: int  # highest version number
    state: str  # of the latest version: retired when all are
    bytes: int  # of the latest version, packed, as stored
    tier: Tier  # where what the bare name answers with lies at best; device: a slot, host: a replica's memory
    created_at: datetime
    can: list[AdapterAction]

    @classmethod
    def of(cls, row: AdapterRow, base: str, viewer: Viewer, tier_of: Callable[[str], Tier]) -> AdapterOut:
        return cls(
            id=row.adapter.name,
            name=row.adapter.name,
            base=base,
            aliases=row.aliases,
            latest=row.latest.number,
            state=row.latest.state,
            bytes=row.latest.num_bytes,
            tier=tier_of(row.answering),
            created_at=row.adapter.created_at,
            can=viewer.can_adapter(row),
        )


class AdapterList(Page[AdapterOut], frozen=True, kw_only=True):
    data: list[AdapterOut]
    next: str | None  # value of `after` for the next page

    @classmethod
    def of(
        cls, cut: Cut[AdapterRow], base: str, viewer: Viewer, tier_of: Callable[[str], Tier]
    ) -> AdapterList:
        return cut.fill(
            cls,
            lambda row: AdapterOut.of(row, base, viewer, tier_of),
            next=cut.rows[-1].adapter.name if cut.has_more else None,
        )


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["adapter.deleted", "adapter.version.deleted"]
    deleted: bool = True
