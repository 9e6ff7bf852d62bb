"""What the adapter pool says of itself: plain numbers for `Stats`, `/internal/state` and the metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TierState:
    """One tier. Evictions only grow while the process lives."""

    used_bytes: int
    budget_bytes: int | None  # None = not bounded in bytes (on a CPU a slot only points to host memory)
    residents: int
    in_use: int  # residents with running sequences
    evictions: dict[str, int]  # by reason (`engine.core.adapter_entry.Reason`)


@dataclass(frozen=True, slots=True)
class OwnerState:
    """What one owner holds and waits for."""

    owner: str
    host_bytes: int
    host_adapters: int
    slots: int
    loading: int
    pending: int  # loads that wait for a thread, for room or for this owner's rate
    throttled_ms: float  # until its rate lets it load again; 0 = now


@dataclass(frozen=True, slots=True)
class AdapterSnapshot:
    """The pool at one moment. Counters (`loads`, `failed_loads`, evictions) only grow."""

    device: TierState
    host: TierState
    num_slots: int
    waiting_for_slot: int  # adapters
    longest_slot_wait_ms: float
    pending_requests: int  # loads not begun that requests wait for
    pending_hints: int
    loading: dict[str, int]  # by lane: disk, store
    loads: dict[str, int]  # by tier found in
    failed_loads: int
    owners: list[OwnerState]  # those with most in host memory or in the queue, at most MAX_OWNERS_SHOWN
