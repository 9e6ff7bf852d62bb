"""Wire types of changes, and how they look in a stream."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from gateway.changes.kinds import Kind

End = Literal["draining", "renew", "session_ended", "slow"]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Read again what it names. `tenant` null: of the platform. `objects`: names or ids as routes take them;
    none: it may be any of the kind. It says nothing of what was changed, or by whom."""

    id: UUID
    kind: Kind
    tenant: UUID | None
    objects: list[str]
    at: datetime


class Opened(msgspec.Struct, frozen=True):
    """`complete`: what came since `Last-Event-ID` follows, whole. Otherwise something may be missing: read
    all. `id` is the place to go on from."""

    id: UUID
    complete: bool


def change_frame(change: Change) -> bytes:
    return _frame("change", change, change.id)


def opened_frame(opened: Opened, retry_ms: int) -> bytes:
    """`begin`, for `open` is what browsers call something else."""
    return b"retry: %d\n%b" % (retry_ms, _frame("begin", opened, opened.id))


def reset_frame(place: UUID) -> bytes:
    """Something may be missing: read all."""
    return _frame("reset", {}, place)


def end_frame(reason: End) -> bytes:
    return _frame("end", {"reason": reason}, None)


def _frame(event: str, data: Any, place: UUID | None) -> bytes:
    head = f"event: {event}\n" if place is None else f"event: {event}\nid: {place}\n"
    return b"%bdata: %b\n\n" % (head.encode(), msgspec.json.encode(data))
