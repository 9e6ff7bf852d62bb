"""Metrics of the walk. Names are vLLM's where it has one, so that its dashboards fit."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING

from prometheus_client import Counter, Histogram

if TYPE_CHECKING:
    from gateway.inference.call import Call
    from gateway.inference.ending import Record

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

TTFT = Histogram(
    "vllm:time_to_first_token_seconds",
    "From a request's arrival to the first bytes sent on.",
    buckets=_SECONDS,
)
TPOT = Histogram(
    "vllm:request_time_per_output_token_seconds",
    "Mean time between output tokens, by the engine's clock.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
E2E = Histogram("vllm:e2e_request_latency_seconds", "From a request's arrival to its end.", buckets=_SECONDS)
PROMPT_TOKENS = Counter("vllm:prompt_tokens_total", "Prompt tokens of ended attempts.")
GENERATION_TOKENS = Counter("vllm:generation_tokens_total", "Generated tokens of ended attempts.")
CACHE = Counter(
    "motet_gateway_response_cache_total", "Looks into the response cache, by what came of them.", ["outcome"]
)
ENDED = Counter("motet_gateway_requests_ended_total", "Ended requests that were admitted.", ["outcome"])


@lru_cache(maxsize=64)
def _ended(outcome: str) -> Counter:
    return ENDED.labels(outcome)


def observe_first_bytes(call: Call) -> None:
    if call.purpose == "tenant":
        TTFT.observe(time.monotonic() - call.arrived)


def observe_end(call: Call, record: Record | None) -> None:
    """Tenants' requests only: probes would blur every picture."""
    if call.purpose != "tenant":
        return
    _ended("unserved" if record is None else record.outcome).inc()
    E2E.observe(time.monotonic() - call.arrived)
    trailer = record.trailer if record else None
    if trailer is None:
        return
    PROMPT_TOKENS.inc(trailer.usage.prompt)
    GENERATION_TOKENS.inc(trailer.usage.completion)
    per_choice = trailer.usage.completion / call.request.num_choices
    if trailer.timings.ttft_ms is not None and per_choice > 1:
        TPOT.observe((trailer.timings.total_ms - trailer.timings.ttft_ms) / 1000 / (per_choice - 1))
