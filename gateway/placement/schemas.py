"""Wire types of placements."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from gateway.actions import TENANT, Call
from gateway.catalog.names import MAX_VERSION
from gateway.models import PlacementTier
from gateway.paging import Page
from gateway.placement.moves import Move, Tier
from gateway.placement.repository import Named

PlacementAction = Literal["place", "unplace"]
_PLACEMENT = f"{TENANT}/adapters/{{name}}/placement"
ACTIONS: Final[Mapping[PlacementAction, Call]] = {
    "place": Call("PUT", _PLACEMENT),
    "unplace": Call("DELETE", _PLACEMENT),
}

State = Literal["met", "waiting", "over_quota", "no_version", "unplaced"]


class PlacementBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a whole placement. `version` null: whichever `live` points to. Not `pinned`: it is brought back
    when others have pushed it out, at most once a minute."""

    replicas: Annotated[int, Meta(ge=1, le=256, description="That hold it, at least.")] = 1
    pinned: bool = True
    tier: PlacementTier = PlacementTier.HOST
    version: Annotated[int, Meta(ge=1, le=MAX_VERSION)] | None = None

    def values(self) -> dict[str, int | bool | str | None]:
        return {
            "replicas": self.replicas,
            "pinned": self.pinned,
            "tier": self.tier.value,
            "version": self.version,
        }


class Held(msgspec.Struct, frozen=True):
    """On how many replicas it is in a slot, and in memory without one."""

    device: int
    host: int


class PlacementOut(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted, and beside it what is. `over_quota`: not applied until there is room in the tenant's
    quota; `no_version`: what it names may not serve, now; `unplaced`: nothing is wanted but by requests, and
    `replicas` is 0."""

    object: Literal["adapter.placement"] = "adapter.placement"
    adapter: str
    replicas: int
    pinned: bool
    tier: PlacementTier
    version: int | None
    serves: int | None  # the version that this means now
    held: Held
    state: State
    created_at: datetime | None
    updated_at: datetime | None
    can: list[PlacementAction]

    @property
    def fields(self) -> dict[str, Any]:
        """What a PUT may name, as it is."""
        named = ("replicas", "pinned", "tier", "version")
        return {name: getattr(self, name) for name in named}


class PlacementDeleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # the adapter's name
    object: Literal["adapter.placement.deleted"] = "adapter.placement.deleted"
    deleted: bool = True


class QuotaBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Over all replicas: an adapter of 10 MB on three of them takes 30 MB, and three slots if it is placed
    on the device."""

    slots: Annotated[int, Meta(ge=0, le=65_536)]
    bytes: Annotated[int, Meta(ge=0, le=2**50)]


class QuotaOut(msgspec.Struct, frozen=True, kw_only=True):
    slots: int
    bytes: int
    is_default: bool
    wanted_slots: int  # of all its placements, applied or not
    wanted_bytes: int


class Wish(msgspec.Struct, frozen=True):
    """A placement, as operators see it."""

    replicas: int
    pinned: bool
    tier: PlacementTier
    within_quota: bool


class Holder(msgspec.Struct, frozen=True):
    """`disk`: it had it in memory, so its disk has it most likely."""

    replica: str
    tier: Literal["device", "host", "disk"]


class PlacedAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """An artefact that is wanted somewhere, or lies somewhere. `homes`: the replicas that it is wanted on, or
    the first of its ranking; all of `held` is what the worker that answers heard last."""

    artefact: str
    tenant: UUID | None  # null, like the next two: no version has it any more
    adapter: str | None
    version: int | None
    wanted: Wish | None
    homes: list[str]
    held: list[Holder]
    can: list[PlacementAction]


class PlacedPage(Page[PlacedAdapter], frozen=True, kw_only=True):
    data: list[PlacedAdapter]


class MoveOut(msgspec.Struct, frozen=True):
    """`none`: on the replica's disk at most. `tenant`, `adapter` and `version` null: no version has it any
    more."""

    at: datetime
    replica: str
    artefact: str
    before: Tier
    after: Tier
    tenant: UUID | None
    adapter: str | None
    version: int | None

    @classmethod
    def of(cls, move: Move, named: Named | None) -> MoveOut:
        who = (None, None, None) if named is None else (named.tenant, named.adapter, named.version)
        return cls(move.at, move.replica, move.artefact, move.before, move.after, *who)


class MoveList(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[MoveOut]
