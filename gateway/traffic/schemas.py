"""Figures of requests as they are told."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from gateway.traffic.histograms import quantile


class Percentiles(msgspec.Struct, frozen=True):
    """Milliseconds, estimated; null where nothing was measured. `count`: of what was."""

    count: int
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, buckets: list[int]) -> Percentiles:
        p50, p90, p95, p99 = (_rounded(quantile(buckets, part)) for part in (0.5, 0.9, 0.95, 0.99))
        return cls(sum(buckets), p50, p90, p95, p99)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Exact counts of requests by what they came to, of which each is one; billed tokens; and times: `ttft`
    of streams, from the first byte of their head; `inter_token` the mean of each request, by the replica's
    clock; `queue` of those that were dispatched; `total` of all."""

    requests: int
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
    ttft_ms: Percentiles
    inter_token_ms: Percentiles
    queue_ms: Percentiles
    total_ms: Percentiles


class Point(msgspec.Struct, frozen=True):
    """Of [at, at + step_s), by the end of the requests. A step in which there was nothing has no point."""

    at: datetime
    figures: Figures


class Series(msgspec.Struct, frozen=True):
    """`key`: `all`; an adapter's name, or `(base)`, or `(unresolved)` for requests that were refused before
    it was known; a tenant's id. `(other)`: all but the largest. `tenant`: whose requests, where there are
    series of several tenants."""

    key: str
    tenant: UUID | None
    tenant_name: str | None
    total: Figures
    points: list[Point]


class RequestMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Of [start, end). Percentiles are within `error_factor` of the exact ones, between `least_ms` and
    `most_ms`; what is outside counts as that. `complete_until`: what ended before is in, ten seconds ago at
    the latest."""

    object: Literal["request_metrics"] = "request_metrics"
    start: datetime
    end: datetime
    complete_until: datetime
    step_s: int  # may be longer than asked for, where only hours are kept
    by: Literal["adapter", "tenant"] | None
    error_factor: float
    least_ms: float
    most_ms: float
    data: list[Series]


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 3)
