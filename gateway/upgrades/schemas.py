"""What routes of bases and their upgrades take and answer with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal
from uuid import UUID

import msgspec

from gateway.actions import Call
from gateway.paging import Page
from gateway.replicas.schemas import Digest

UpgradeAction = Literal["end"]
UPGRADE_ACTIONS: Final[Mapping[UpgradeAction, Call]] = {
    "end": Call("POST", "/api/v1/bases/{base_id}/upgrades/{digest}/end")
}
BaseAction = Literal["begin_upgrade"]
BASE_ACTIONS: Final[Mapping[BaseAction, Call]] = {
    "begin_upgrade": Call("POST", "/api/v1/bases/{base_id}/upgrades")
}


class UpgradeIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    base_digest: Digest


class UpgradeEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`keep`: the weights that go on alone. `leave_behind`: though not all versions are proved."""

    keep: Literal["new", "old"]
    leave_behind: bool = False


class UpgradeOut(msgspec.Struct, frozen=True, kw_only=True):
    base_digest: str
    state: str  # proving | finished | abandoned
    proved: int  # ready versions that passed on these weights
    failed: int
    left: int  # not proved there yet
    started_at: datetime
    ended_at: datetime | None
    can: list[UpgradeAction]


class BaseOut(msgspec.Struct, frozen=True, kw_only=True):
    id: str  # base_id
    name: str
    served: bool  # by this gateway
    digests: list[str] | None  # weights that may serve it; null = none seen yet
    upgrades: list[UpgradeOut]
    created_at: datetime
    can: list[BaseAction]


class BaseList(Page[BaseOut], frozen=True, kw_only=True):
    data: list[BaseOut]


class LeftBehind(msgspec.Struct, frozen=True, kw_only=True):
    """A ready version that can't follow."""

    tenant: UUID
    id: str  # name@number
    base_id: str  # of its own base
    reason: str  # `other_base`, or what failed


class LeftBehindList(Page[LeftBehind], frozen=True, kw_only=True):
    data: list[LeftBehind]
