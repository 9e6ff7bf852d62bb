"""Every number that bounds the core, with its unit, and the facts of the model that it serves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from engine.core.adapter_rules import AdapterRules

STATS_WORKING_S: Final = 0.25
STATS_IDLE_S: Final = 1.0
CHECK_EVERY_S: Final = 60.0
"""An idle core asserts that blocks and slots add up, but no more often: with many that takes a while,
and the next request may come meanwhile."""
CLOSE_S: Final = 1.0
"""How long a core that stops waits for adapter loads under way."""
MAX_TENANTS_KNOWN: Final = 4_096
"""Tenants whose served tokens are remembered; those with the least are forgotten past it."""
MAX_TENANTS_SHOWN: Final = 64
"""Tenants in a picture of the scheduler."""
MAX_PROMPT_LOGPROBS: Final = 3_000_000
"""Log-probabilities of one prompt, the best tokens' included: they cross to the server in one message, at
15 to 18 bytes each, and that has a limit."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the core knows of the model: names, sizes and end tokens; the weights are the runner's."""

    base_id: str
    base_digest: str
    max_model_len: int  # tokens, prompt and completion together
    vocab_size: int
    eos_token_ids: tuple[int, ...]


NEWCOMER_PART: Final = 8


def num_newcomers(max_running: int, step_tokens: int) -> int:
    """Places beyond the running limit for sequences of tenants that run nothing: an eighth of it, so that
    they don't wait until one of a crowd's ends. Prompts keep a token of each step."""
    return max(0, min(max_running // NEWCOMER_PART, step_tokens - 1 - max_running))


@dataclass(frozen=True, slots=True)
class CoreConfig:
    """Limits of one core. Nothing changes them later."""

    num_blocks: int  # KV blocks in all
    block_size: int = 16  # tokens in a block
    step_tokens: int = 256  # tokens computed in one step, at most
    max_running: int = 64  # sequences in one step, besides `newcomers`
    max_open: int = 1_024  # requests held, running and waiting
    num_slots: int = 8  # adapters in the batch's memory
    max_adapters_per_step: int | None = None  # adapters in one step; None = as many as slots
    itl_stretch: float | None = 1.7  # a step with prompts takes this much of one without; None = any
    target_itl_ms: float | None = None  # the number of running sequences follows it; None = it doesn't
    host_budget_bytes: int = 2 * 1024**3  # adapters in host memory; exceeded by what is being loaded at most
    device_budget_bytes: int | None = None  # adapters in slots; None = slots only point to host memory
    loader_threads: int = 4  # adapter loads from disk under way
    adapters: AdapterRules = field(default_factory=AdapterRules)
    watermark: float = 0.01  # share of blocks that an admission leaves free while others run
    aging_s: float = 10.0  # a request gains one class for each such time since it arrived
    reserve_after_s: float = 2.0  # blocked on KV for longer: later requests leave blocks for it
    drain_after_s: float = (
        1.0  # an adapter waits for a slot (or for host memory) this long, then one is drained
    )
    failure_memory_s: float = (
        1.0  # a failed load answers later requests for this long, then it is tried again
    )
    confirm_timeout_s: float = 5.0  # for the server to confirm the count of a choice with stop strings

    def __post_init__(self) -> None:
        assert self.num_blocks > 0
        assert self.block_size > 0
        assert 0 < self.max_running < self.step_tokens, "decoding must leave room for prefill in each step"
        assert self.num_slots > 0
        assert self.loader_threads > 0
        assert self.max_adapters_per_step is None or self.max_adapters_per_step > 0
        assert self.itl_stretch is None or self.itl_stretch > 1
        assert self.target_itl_ms is None or self.target_itl_ms > 0

    @property
    def newcomers(self) -> int:
        return num_newcomers(self.max_running, self.step_tokens)

    @property
    def adapters_per_step(self) -> int:
        """Adapters in one step, at most."""
        if self.max_adapters_per_step is None:
            return self.num_slots
        return min(self.max_adapters_per_step, self.num_slots)

    @property
    def watermark_blocks(self) -> int:
        return math.ceil(self.num_blocks * self.watermark)

    def too_large(self, host_bytes: int, device_bytes: int) -> str | None:
        """Why an adapter can never be here, or None."""
        if host_bytes > self.host_budget_bytes:
            return "The adapter is larger than the host memory for adapters."
        if self.device_budget_bytes is not None and device_bytes > self.device_budget_bytes:
            return "The adapter is larger than the device memory for adapters."
        return None

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold the KV of this many tokens."""
        return -(-num_tokens // self.block_size)
