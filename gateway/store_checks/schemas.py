"""Wire types of the object store and of checks of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from gateway.models import StoreCheck
from gateway.paging import Page


class CheckIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`depth`: `listed` compares what is there and how long it is, `sampled` reads 100 artefacts against
    their checksums too, `full` all."""

    repair: bool = False
    depth: Literal["listed", "sampled", "full"] = "sampled"


class CheckOut(msgspec.Struct, frozen=True, kw_only=True):
    """`found` is there once it is done: counts by what was found, and examples
    (`gateway/store_checks/found.py`)."""

    id: UUID
    object: Literal["store.check"] = "store.check"
    repair: bool
    depth: str
    state: str  # waiting | running | done | failed
    asked_by: str
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    clean: bool | None  # nothing was wrong, or all of it was mended
    found: dict[str, Any] | None
    error: str | None

    @classmethod
    def of(cls, row: StoreCheck) -> CheckOut:
        found = None if row.found is None else {k: v for k, v in row.found.items() if k != "clean"}
        return cls(
            id=row.id,
            repair=row.repair,
            depth=row.depth,
            state=row.state,
            asked_by=row.asked_by,
            asked_at=row.asked_at,
            started_at=row.started_at,
            ended_at=row.ended_at,
            clean=None if row.found is None else bool(row.found["clean"]),
            found=found,
            error=row.error,
        )


class CheckList(Page[CheckOut], frozen=True, kw_only=True):
    data: list[CheckOut]


class StoreOut(msgspec.Struct, frozen=True, kw_only=True):
    """`code` and `message` say what is wrong while it is not `reachable`."""

    kind: Literal["folder", "s3"]
    place: str  # its URL, without options
    reachable: bool
    code: str | None
    message: str | None
    versions_lost: int
    purges_under_way: int
    replicas_owing: list[str]  # which serve nothing before they have purged
    last_check: CheckOut | None
