"""What the scheduler says of itself: plain numbers for `Stats`, `/internal/state` and the metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TenantServed:
    """One tenant's part, for people."""

    tenant: str
    served: float  # weighted tokens
    waiting_tokens: int  # to compute


@dataclass(frozen=True, slots=True)
class Queue:
    """The scheduler at one moment."""

    running: int  # sequences
    running_limit: int  # of them; below `max_running` only where latency has a target
    waiting: int
    waiting_tokens: int  # to compute before all that wait are sampled for the first time
    running_tokens: int  # the same, of those that run
    step_ms: float  # what the step planned last is estimated to take
    tenants: list[TenantServed]
