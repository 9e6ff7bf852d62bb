"""The pool's picture of itself, and its counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.core.adapter_entry import Entry, Lane, Reason
from engine.core.adapter_host import HostTier
from engine.core.adapter_loads import LoadQueue
from engine.core.adapter_rules import MAX_OWNERS_SHOWN
from engine.core.adapter_slots import SlotTable
from engine.core.adapter_state import AdapterSnapshot, OwnerState, TierState
from engine.core.protocol import Residency, Tier


@dataclass(slots=True)
class AdapterCounters:
    """Over the life of the process."""

    loads: Counter[str] = field(default_factory=lambda: Counter({Tier.DISK.value: 0, Tier.STORE.value: 0}))
    hits: int = 0
    failed: int = 0


def residency_of(artefact: str, entry: Entry | None) -> Residency:
    """`entry`: None for an adapter that is absent and that nobody wants."""
    if entry is None:
        return Residency(artefact, device=False, host=False, loading=False, requests=0, running=0)
    return Residency(
        artefact,
        device=entry.slot is not None,
        host=entry.loaded is not None,
        loading=entry.loading,
        requests=entry.users,
        running=entry.pins,
    )


def snapshot_of(
    slots: SlotTable,
    host: HostTier,
    loads: LoadQueue,
    counters: AdapterCounters,
    now: float,
) -> AdapterSnapshot:
    pending, loading = loads.pending, loads.loading
    lanes = Counter(entry.lane for entry in loading)
    return AdapterSnapshot(
        device=_tier(slots.occupants, slots.used_bytes, slots.budget_bytes, slots.evictions),
        host=_tier(host.entries, host.used_bytes, host.budget_bytes, host.evictions),
        num_slots=slots.num_slots,
        waiting_for_slot=len(slots.waiting),
        longest_slot_wait_ms=1000 * max((now - wait.since for wait in slots.waiting.values()), default=0.0),
        pending_requests=sum(entry.users > 0 for entry in pending),
        pending_hints=sum(entry.users == 0 for entry in pending),
        loading={lane.value: lanes[lane] for lane in Lane},
        loads=dict(counters.loads),
        failed_loads=counters.failed,
        owners=_owners(host.entries, pending, loading, loads, now),
    )


def _tier(
    residents: list[Entry], used_bytes: int, budget_bytes: int | None, evictions: Mapping[Reason, int]
) -> TierState:
    return TierState(
        used_bytes=used_bytes,
        budget_bytes=budget_bytes,
        residents=len(residents),
        in_use=sum(entry.pins > 0 for entry in residents),
        evictions={reason.value: evictions.get(reason, 0) for reason in Reason},
    )


def _owners(
    residents: list[Entry], pending: list[Entry], loading: list[Entry], loads: LoadQueue, now: float
) -> list[OwnerState]:
    held: Counter[str] = Counter()
    for entry in residents:
        held[entry.owner] += entry.num_bytes
    num_pending = Counter(entry.owner for entry in pending)
    num_loading = Counter(entry.owner for entry in loading)
    num_adapters = Counter(entry.owner for entry in residents)
    num_slots = Counter(entry.owner for entry in residents if entry.slot is not None)
    first = sorted({*held, *num_pending, *num_loading}, key=lambda o: (-num_pending[o], -held[o], o))
    return [
        OwnerState(
            owner=owner,
            host_bytes=held[owner],
            host_adapters=num_adapters[owner],
            slots=num_slots[owner],
            loading=num_loading[owner],
            pending=num_pending[owner],
            throttled_ms=1000 * loads.wait_s(owner, now),
        )
        for owner in first[:MAX_OWNERS_SHOWN]
    ]
