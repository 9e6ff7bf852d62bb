"""One worker's count of a minute, tenant and adapter, as it goes into `request_minutes`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from gateway.traffic.histograms import NUM_BUCKETS, trimmed

MINUTE_S: Final = 60
QUARTER_S: Final = 900
HOUR_S: Final = 3_600

ALL: Final = "(all)"  # of the tenant
BASE: Final = "(base)"
UNRESOLVED: Final = "(unresolved)"  # refused before it was known which weights it asked for
OTHER: Final = "(other)"
"""Stand where an adapter's name (or `owner/name`) would; none of them can be one."""

PLATFORM: Final = UUID(int=0)
"""Stands where a tenant's id would, with `ALL`: what all tenants come to together. No tenant has it, and no
role of a tenant sees its rows."""

COUNTS: Final = (
    "served",
    "cached",
    "replayed",
    "refused_by_limit",
    "refused_by_queue",
    "refused_otherwise",
    "failed",
    "client_left",
)
TOKENS: Final = ("prompt_tokens", "completion_tokens", "cached_tokens")
HISTOGRAMS: Final = ("ttft", "inter_token", "queue", "total")


class Measured(NamedTuple):
    """What one request adds: its place in `COUNTS`, its buckets in each of `HISTOGRAMS` (None: not measured)
    and its billed tokens as in `TOKENS`."""

    outcome: int
    buckets: tuple[int | None, int | None, int | None, int]
    tokens: tuple[int, int, int] = (0, 0, 0)


class MinuteRow(msgspec.Struct, kw_only=True):
    """Names and meaning are the table's columns. Tokens are those that are billed, as in the ledger."""

    tenant_id: UUID
    at: datetime
    adapter: str
    source: UUID
    sequence: int
    span_s: int
    served: int
    cached: int
    replayed: int
    refused_by_limit: int
    refused_by_queue: int
    refused_otherwise: int
    failed: int
    client_left: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    ttft: list[int]
    inter_token: list[int]
    queue: list[int]
    total: list[int]


class Cell:
    """Counted up in place, and written as it then is. `source`: under which it is the only one of its key."""

    __slots__ = ("counts", "histograms", "source", "tokens")

    def __init__(self, source: UUID) -> None:
        self.source = source
        self.counts = [0] * len(COUNTS)
        self.tokens = [0] * len(TOKENS)
        self.histograms = tuple([0] * NUM_BUCKETS for _ in HISTOGRAMS)

    def add(self, measured: Measured) -> None:
        self.counts[measured.outcome] += 1
        for buckets, bucket in zip(self.histograms, measured.buckets, strict=True):
            if bucket is not None:
                buckets[bucket] += 1
        prompt, completion, cached = measured.tokens
        if prompt or completion:
            self.tokens[0] += prompt
            self.tokens[1] += completion
            self.tokens[2] += cached

    def row(self, tenant: UUID, at: datetime, adapter: str, sequence: int) -> MinuteRow:
        found: dict[str, Any] = dict(zip(COUNTS, self.counts, strict=True))
        found |= zip(TOKENS, self.tokens, strict=True)
        found |= zip(HISTOGRAMS, map(trimmed, self.histograms), strict=True)
        return MinuteRow(
            tenant_id=tenant,
            at=at,
            adapter=adapter,
            source=self.source,
            sequence=sequence,
            span_s=MINUTE_S,
            **found,
        )
