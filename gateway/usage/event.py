"""One line of a worker's usage journal, which becomes one row of the ledger."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

BILLED_OUTCOMES = frozenset({"finished", "aborted"})
"""What reached the client, or was cut by it. All else failed on our side and bills nothing."""

TAKEN_OVER = "taken_over"
"""Outcome of what stands between the attempts of a dead worker and those in its place
(`gateway/idempotency`): no attempt, so nothing that could be counted."""


class UsageEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt that reached a replica, or a cache hit. Names and meaning are the ledger's columns.

    `counted` False: the replica was lost before it said what it computed. The row then waits until the
    replica's own journal tells, and bills nothing (docs/ARCHITECTURE.md, ledger row).
    """

    request_id: UUID
    attempt: int
    tenant_id: UUID
    key_id: str
    base_id: str
    outcome: str
    created_at: datetime
    ended_at: datetime
    purpose: str = "tenant"
    source: str = "engine"
    adapter_name: str | None = None
    adapter_version: int | None = None
    artefact: str | None = None
    owner_id: UUID | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    billed_prompt_tokens: int = 0
    billed_completion_tokens: int = 0
    billed_cached_tokens: int = 0
    queue_ms: int | None = None
    load_ms: int | None = None
    ttft_ms: int | None = None
    total_ms: int | None = None
    tier: str | None = None
    service_class: str = "standard"
    replica: str | None = None
    price_book_version: int | None = None
    client_request_id: str | None = None
    counted: bool = True


COLUMNS: tuple[str, ...] = tuple(name for name in UsageEvent.__struct_fields__ if name != "counted")
"""In the order in which rows are copied."""

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(UsageEvent)


def encode_line(event: UsageEvent) -> bytes:
    return _ENCODER.encode(event) + b"\n"


def decode_lines(data: bytes) -> tuple[list[UsageEvent], int]:
    """The events of a segment, and how many bytes at its end are a torn line (a worker died while it wrote).

    Raises `msgspec.MsgspecError` for a whole line that is no event: that is damage, not a crash.
    """
    end = data.rfind(b"\n") + 1
    return [_DECODER.decode(line) for line in data[:end].splitlines() if line], len(data) - end


def sound_lines(data: bytes) -> tuple[list[UsageEvent], int]:
    """The events of a damaged segment, and how many of its whole lines are none: what is sound was promised
    to clients, and of cached answers nobody else tells."""
    events, broken = [], 0
    for line in data[: data.rfind(b"\n") + 1].split(b"\n"):
        try:
            if line:
                events.append(_DECODER.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            broken += 1
    return events, broken


def row(event: UsageEvent) -> tuple[object, ...]:
    return tuple(getattr(event, name) for name in COLUMNS)
