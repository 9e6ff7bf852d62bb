"""What `/metrics` tells. Names are vLLM's where it has one, so that its dashboards work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.core.protocol import Ended, Outcome, Stats
from engine.server.attempt import Attempt

_FIRST_TOKEN_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_BETWEEN_TOKENS_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.4, 1.0, 2.5, 5.0)
_WHOLE_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    """Histograms the server observes itself, and counters and gauges copied from the core's last `Stats`."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.registry = CollectorRegistry()
        self._first_token = self._histogram(
            "vllm:time_to_first_token_seconds", "Arrival to first token.", _FIRST_TOKEN_S
        )
        self._between = self._histogram(
            "vllm:inter_token_latency_seconds", "Time between tokens of a request.", _BETWEEN_TOKENS_S
        )
        self._per_token = self._histogram(
            "vllm:request_time_per_output_token_seconds",
            "Mean time per token after the first, by request.",
            _BETWEEN_TOKENS_S,
        )
        self._whole = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to end.", _WHOLE_S)
        self._queue = self._histogram(
            "vllm:request_queue_time_seconds", "Arrival to first scheduled.", _WHOLE_S
        )
        self._outcomes = Counter(
            "motet_engine_requests", "Requests by outcome.", ["model_name", "outcome"], registry=self.registry
        )

    def watch(self, source: StatsSource) -> None:
        self.registry.register(_FromStats(self._model, source))

    def tokens(self, attempt: Attempt, count: int) -> None:
        """Some tokens of one choice came; with n > 1 the choices' gaps interleave, as in vLLM."""
        now_s = time.monotonic()
        if attempt.last_token_s is not None and count:
            self._between.observe((now_s - attempt.last_token_s) / count)
        attempt.last_token_s = now_s

    def ended(self, frame: Ended) -> None:
        self._outcomes.labels(self._model, frame.outcome.value).inc()
        if frame.outcome is not Outcome.FINISHED:
            return
        timings = frame.timings
        self._whole.observe(timings.total_ms / 1000)
        self._queue.observe(timings.queue_ms / 1000)
        if timings.ttft_ms is not None:
            self._first_token.observe(timings.ttft_ms / 1000)
            if frame.usage.completion > 1:
                rest_ms = timings.total_ms - timings.ttft_ms
                self._per_token.observe(rest_ms / 1000 / (frame.usage.completion - 1))

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, about, ["model_name"], buckets=buckets, registry=self.registry).labels(
            self._model
        )


class StatsSource(Protocol):
    @property
    def stats(self) -> Stats | None: ...


_GAUGES: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("vllm:num_requests_running", "Requests in the running batch.", lambda s: s.running),
    ("vllm:num_requests_waiting", "Requests waiting in the core.", lambda s: s.waiting),
    (
        "vllm:kv_cache_usage_perc",
        "KV blocks in use, 1 = all.",
        lambda s: s.blocks_used / max(1, s.blocks_total),
    ),
    ("motet_waiting_tokens", "Tokens still to compute of waiting requests.", lambda s: s.waiting_tokens),
    ("motet_kv_blocks", "KV blocks in all.", lambda s: s.blocks_total),
    ("motet_kv_blocks_cached", "KV blocks kept for prefix hits only.", lambda s: s.blocks_cached),
    ("motet_kv_blocks_free", "KV blocks that hold nothing.", lambda s: s.blocks_free),
    ("motet_running_limit", "Requests that may run at once.", lambda s: s.queue.running_limit),
    (
        "motet_running_tokens",
        "Tokens still to compute of running requests.",
        lambda s: s.queue.running_tokens,
    ),
    (
        "motet_adapters_waiting_for_slot",
        "Adapters that wait for a slot.",
        lambda s: s.adapters.waiting_for_slot,
    ),
    (
        "motet_adapter_loads_waiting",
        "Adapter loads not begun that requests wait for.",
        lambda s: s.adapters.pending_requests,
    ),
)
_COUNTERS: tuple[tuple[str, str, Callable[[Stats], float]], ...] = (
    ("vllm:prompt_tokens", "Prompt tokens computed.", lambda s: s.prompt_tokens_total),
    ("vllm:generation_tokens", "Tokens generated.", lambda s: s.generation_tokens_total),
    ("vllm:prefix_cache_queries", "Prompt tokens looked up.", lambda s: s.cache_query_tokens_total),
    ("vllm:prefix_cache_hits", "Prompt tokens found in the cache.", lambda s: s.cache_hit_tokens_total),
    ("vllm:num_preemptions", "Requests preempted.", lambda s: s.preemptions_total),
    ("motet_steps", "Steps of the core.", lambda s: s.steps_total),
    ("motet_step_seconds", "Time that steps took on the runner.", lambda s: s.step_seconds_total),
    ("motet_host_seconds", "Time of the core's own thread beside them.", lambda s: s.host_seconds_total),
    ("motet_adapter_load_failures", "Adapter loads that failed.", lambda s: s.adapters.failed_loads),
    ("motet_adapter_hits", "Requests whose adapter was in a slot.", lambda s: s.adapter_hits_total),
)


class _FromStats(Collector):
    def __init__(self, model: str, source: StatsSource) -> None:
        self._model = model
        self._source = source

    def collect(self) -> Iterator[Metric]:
        stats = self._source.stats
        if stats is None:
            return
        for name, about, read in _GAUGES:
            gauge = GaugeMetricFamily(name, about, labels=["model_name"])
            gauge.add_metric([self._model], read(stats))
            yield gauge
        for name, about, read in _COUNTERS:
            counter = CounterMetricFamily(name, about, labels=["model_name"])
            counter.add_metric([self._model], read(stats))
            yield counter
        yield from self._adapters(stats)

    def _adapters(self, stats: Stats) -> Iterator[Metric]:
        labels = ["model_name", "tier"]
        resident = GaugeMetricFamily("motet_adapter_resident", "Adapters held, by tier.", labels=labels)
        resident.add_metric([self._model, "device"], len(stats.device))
        resident.add_metric([self._model, "host"], len(stats.host))
        yield resident
        yield from self._adapter_bytes(stats)
        loads = CounterMetricFamily("motet_adapter_loads", "Adapter loads, by tier found in.", labels=labels)
        for tier, count in stats.adapter_loads_total.items():
            loads.add_metric([self._model, tier], count)
        yield loads
        evictions = CounterMetricFamily(
            "motet_adapter_evictions", "Adapter evictions, by tier left.", labels=labels
        )
        for tier, count in stats.adapter_evictions_total.items():
            evictions.add_metric([self._model, tier], count)
        yield evictions

    def _adapter_bytes(self, stats: Stats) -> Iterator[Metric]:
        labels = ["model_name", "tier"]
        used = GaugeMetricFamily("motet_adapter_bytes", "Bytes of adapters held, by tier.", labels=labels)
        budget = GaugeMetricFamily(
            "motet_adapter_budget_bytes", "Bytes that adapters may take, by tier.", labels=labels
        )
        for name, tier in (("device", stats.adapters.device), ("host", stats.adapters.host)):
            used.add_metric([self._model, name], tier.used_bytes)
            if tier.budget_bytes is not None:
                budget.add_metric([self._model, name], tier.budget_bytes)
        yield used
        yield budget
