"""How much may wait: in requests, in tokens and in bytes of bodies, of one tenant and of all."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Literal

from gateway.queueing.lanes import Entry
from gateway.refusal import Refusal

MIB: Final = 1024 * 1024

Bound = Literal[
    "items", "tokens", "bytes", "tenant_items", "tenant_tokens", "tenant_bytes", "forecast", "deadline"
]
"""What turns a request away; the values of a metric's label. `forecast`: it would be too late; `deadline`: it
was."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Of one worker. What is greater than a bound of tokens or bytes by itself may wait where nothing else
    does."""

    max_items: int = 4_096
    max_items_tenant: int = 1_024
    max_tokens: int = 16_000_000
    max_tokens_tenant: int = 4_000_000
    max_bytes: int = 256 * MIB
    max_bytes_tenant: int = 64 * MIB
    max_wait_s: float = 120.0
    aging_s: float = 10.0


@dataclass(slots=True)
class Held:
    """What waits."""

    items: int = 0
    tokens: int = 0
    num_bytes: int = 0

    def move(self, entry: Entry, sign: int) -> None:
        self.items += sign
        self.tokens += sign * entry.ticket.tokens
        self.num_bytes += sign * entry.num_bytes


@dataclass(frozen=True, slots=True)
class Promised:
    """Room that was promised to others, which counts as taken."""

    items: int = 0  # of the same tenant and class
    tokens: int = 0
    items_of_all: int = 0


class Bounds:
    """Counts what waits. A tenant is known here while it has something waiting."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self.all = Held()
        self.tenants: dict[Hashable, Held] = {}

    def broken_by(self, entry: Entry, promised: Promised) -> Bound | None:
        """The bound that the request would break."""
        limits, held = self._limits, self.all
        own = self.tenants.get(entry.tenant, _NONE)
        items, tokens = own.items + promised.items, own.tokens + promised.tokens
        more = entry.ticket.tokens
        if items + 1 > limits.max_items_tenant:
            return "tenant_items"
        if items and tokens + more > limits.max_tokens_tenant:
            return "tenant_tokens"
        if own.items and own.num_bytes + entry.num_bytes > limits.max_bytes_tenant:
            return "tenant_bytes"
        if held.items + promised.items_of_all + 1 > limits.max_items:
            return "items"
        if held.items and held.tokens + more > limits.max_tokens:
            return "tokens"
        if held.items and held.num_bytes + entry.num_bytes > limits.max_bytes:
            return "bytes"
        return None

    def refusal(self, bound: Bound, entry: Entry, forecast_s: float | None) -> Refusal:
        """What `bound` had for it, in numbers."""
        if bound in ("forecast", "deadline"):
            needed = None if forecast_s is None else round(forecast_s * 1000)
            allowed = round((entry.deadline - entry.arrived) * 1000)
            return Refusal(f"queue.{bound}", allowed, needed, allowed)
        held = self.tenants.get(entry.tenant, _NONE) if bound.startswith("tenant_") else self.all
        what = bound.removeprefix("tenant_")
        limit = getattr(self._limits, f"max_{what}_tenant" if what != bound else f"max_{what}")
        needed = {"items": 1, "tokens": entry.ticket.tokens, "bytes": entry.num_bytes}[what]
        taken = {"items": held.items, "tokens": held.tokens, "bytes": held.num_bytes}[what]
        return Refusal(f"queue.{bound}", limit, needed, max(0, limit - taken))

    def add(self, entry: Entry) -> None:
        self.all.move(entry, 1)
        self.tenants.setdefault(entry.tenant, Held()).move(entry, 1)

    def remove(self, entry: Entry) -> None:
        self.all.move(entry, -1)
        own = self.tenants[entry.tenant]
        own.move(entry, -1)
        if not own.items:
            del self.tenants[entry.tenant]


_NONE: Final = Held()
