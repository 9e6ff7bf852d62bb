"""Wire types of aliases."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.actions import TENANT, Call
from gateway.aliases.moves import shown, weights_of
from gateway.aliases.spread import MAX_VERSIONS
from gateway.catalog.allowed import Viewer
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


AliasAction = Literal["move", "delete", "begin_rollout"]
ALIAS: Final = f"{TENANT}/adapters/{{name}}/aliases/{{alias}}"
ACTIONS: Final[Mapping[AliasAction, Call]] = {
    "move": Call("PUT", ALIAS),
    "delete": Call("DELETE", ALIAS),
    "begin_rollout": Call("POST", f"{TENANT}/adapters/{{name}}/rollouts"),
}


def can_with(adapter: str, alias: Alias, rollout: UUID | None, viewer: Viewer) -> list[AliasAction]:
    """While a rollout has it, it is the rollout's; one of several versions is pointed to one first."""
    without: set[str] = set()
    if rollout is not None:
        without |= ACTIONS.keys()
    elif alias.spread is not None:
        without.add("begin_rollout")
    return viewer.can_of(ACTIONS, adapter, without)


def fields_of(alias: Alias) -> dict[str, Any]:
    """What a change of it may name, as it is."""
    return {"weights": shown(weights_of(alias))}


class AliasOut(msgspec.Struct, frozen=True, kw_only=True):
    """`version` is the one that most of it goes to. `revision` moves with each change; it is the ETag too.
    `can`: what whoever asks may do with it."""

    id: str  # what to write as `model`: name@alias
    object: Literal["adapter.alias"] = "adapter.alias"
    adapter: str
    alias: str
    version: int
    weights: dict[str, int]
    revision: int
    rollout: UUID | None  # that steps it now
    created_at: datetime
    updated_at: datetime
    can: list[AliasAction]

    @classmethod
    def of(cls, adapter: str, alias: Alias, rollout: UUID | None, viewer: Viewer) -> AliasOut:
        return cls(
            id=f"{adapter}@{alias.name}",
            adapter=adapter,
            alias=alias.name,
            version=alias.version,
            weights=shown(weights_of(alias)),
            revision=alias.revision,
            rollout=rollout,
            created_at=alias.created_at,
            updated_at=alias.updated_at,
            can=can_with(adapter, alias, rollout, viewer),
        )


class AliasList(Page[AliasOut], frozen=True, kw_only=True):
    data: list[AliasOut]


class AliasDeleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["adapter.alias.deleted"] = "adapter.alias.deleted"
    deleted: bool = True
