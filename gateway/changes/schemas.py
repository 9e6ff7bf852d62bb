"""Wire types of changes, and how they look in a stream."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal
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
    return b"retry: %d\n%b" % (retry_ms, _frame("open", opened, opened.id))


def reset_frame(place: UUID) -> bytes:
    """Something may be missing: read all."""
    return _frame("reset", {}, place)


def end_frame(reason: End) -> bytes:
    return _frame("end", {"reason": reason}, None)


def _frame(event: str, data: Any, place: UUID | None) -> bytes:
    head = f"event: {event}\n" if place is None else f"event: {event}\nid: {place}\n"
    return b"%bdata: %b\n\n" % (head.encode(), msgspec.json.encode(data))


OPERATION: Final[dict[str, Any]] = {
    "summary": "What changes, as it happens: server-sent events",
    "description": (
        "`event: open` comes first, then `event: change` with a `Change` each; `reset`: something may be "
        "missing, read all; `end` with its reason before the stream is closed from here."
    ),
    "parameters": [
        {
            "name": "last-event-id",
            "in": "header",
            "required": False,
            "schema": {"type": "string", "maxLength": 36},
            "description": "Goes on behind the event of this id, if that is known here still.",
        },
        {
            "name": "after",
            "in": "query",
            "required": False,
            "schema": {"type": "string", "maxLength": 36},
            "description": "The same, for clients that can send no header.",
        },
    ],
    "responses": {
        "200": {
            "description": "A stream that goes on until either side ends it.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        "406": {"description": "Only text/event-stream is to be had here."},
    },
}
