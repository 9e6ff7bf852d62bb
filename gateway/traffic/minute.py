"""One worker's count of a minute, tenant and adapter, as it goes into `request_minutes`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from gateway.traffic.histograms import NUM_BUCKETS, trimmed

MINUTE_S: Final = 60
HOUR_S: Final = 3_600

BASE: Final = "(base)"
UNRESOLVED: Final = "(unresolved)"  # refused before it was known which weights it asked for
OTHER: Final = "(other)"
"""Stand where an adapter's name would; none of them can be one."""

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
    """Counted up in place, and written as it then is."""

    __slots__ = (*COUNTS, *TOKENS, *HISTOGRAMS)

    def __init__(self) -> None:
        self.served = self.cached = self.replayed = self.failed = self.client_left = 0
        self.refused_by_limit = self.refused_by_queue = self.refused_otherwise = 0
        self.prompt_tokens = self.completion_tokens = self.cached_tokens = 0
        self.ttft = [0] * NUM_BUCKETS
        self.inter_token = [0] * NUM_BUCKETS
        self.queue = [0] * NUM_BUCKETS
        self.total = [0] * NUM_BUCKETS

    def row(self, tenant: UUID, at: datetime, adapter: str, source: UUID, sequence: int) -> MinuteRow:
        found: dict[str, Any] = {name: getattr(self, name) for name in (*COUNTS, *TOKENS)}
        found |= {name: trimmed(getattr(self, name)) for name in HISTOGRAMS}
        return MinuteRow(
            tenant_id=tenant,
            at=at,
            adapter=adapter,
            source=source,
            sequence=sequence,
            span_s=MINUTE_S,
            **found,
        )
