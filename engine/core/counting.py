"""The core's counters, and its picture of itself."""

from __future__ import annotations

from dataclasses import dataclass

from engine.core.adapter_pool import AdapterPool
from engine.core.block_pool import BlockPool
from engine.core.protocol import Stats
from engine.core.request import Request
from engine.core.scheduler import Scheduler
from engine.core.step_figures import StepFigures


@dataclass(slots=True)
class TokenCounters:
    """Tokens over the life of the process. Each is counted once, however often it had to be computed."""

    prompt: int = 0  # computed, cached ones excluded
    generated: int = 0
    _uncounted: int = 0

    def count_prompt(self, request: Request, computed: int) -> None:
        """Counts what a sequence that has computed so many tokens has done of its request's prompt, and
        nobody has counted yet."""
        done = min(computed, len(request.prompt))
        self.prompt += max(0, done - request.num_prompt_counted)
        request.num_prompt_counted = max(request.num_prompt_counted, done)

    def count_generated(self, count: int) -> None:
        """Tokens after a stop string don't count (a negative `count` takes them back), but a counter never
        falls: those counted already are made up for by the next ones."""
        self._uncounted += count
        if self._uncounted > 0:
            self.generated += self._uncounted
            self._uncounted = 0


class Reporter:
    """Makes the frames of `Stats`, numbered."""

    def __init__(
        self, blocks: BlockPool, scheduler: Scheduler, adapters: AdapterPool, figures: StepFigures
    ) -> None:
        self._blocks = blocks
        self._scheduler = scheduler
        self._adapters = adapters
        self._figures = figures
        self._sequence = 0

    def stats(self, steps: int, tokens: TokenCounters, now: float) -> Stats:
        self._sequence += 1
        cache, adapters = self._scheduler.counters, self._adapters.counters
        return Stats(
            sequence=self._sequence,
            running=self._scheduler.num_running,
            waiting=self._scheduler.num_waiting,
            waiting_tokens=self._scheduler.waiting_tokens,
            blocks_total=self._blocks.num_blocks,
            blocks_used=self._blocks.num_used,
            blocks_cached=self._blocks.num_in_cache,
            blocks_free=self._blocks.num_allocatable - self._blocks.num_in_cache,
            device=self._adapters.device,
            host=self._adapters.host,
            steps_total=steps,
            prompt_tokens_total=tokens.prompt,
            generation_tokens_total=tokens.generated,
            cache_query_tokens_total=cache.cache_query_tokens,
            cache_hit_tokens_total=cache.cache_hit_tokens,
            preemptions_total=cache.preemptions,
            adapter_loads_total=dict(adapters.loads),
            adapter_hits_total=adapters.hits,
            adapter_evictions_total=self._adapters.evictions,
            step_seconds_total=self._figures.run_s_total,
            host_seconds_total=self._figures.host_s_total,
            queue=self._scheduler.queue(),
            adapters=self._adapters.snapshot(now),
            steps=self._figures.take(),
        )
