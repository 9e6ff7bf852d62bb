"""Where a request stands in its tenant's own line: the tag that it is given when its tokens are reserved.

Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) with a tenant of a class as the flow. A request
starts where the one before it of the same tenant ends, or at the class's own virtual time if that is later,
and ends its length later. So a tenant's tags lie one behind the other, whichever worker its requests reach,
and tags of all tenants of a class can be compared.

Lengths are estimates: a prompt and the most that may be generated. What was not used comes back when the
request ends: the tenant's line gets shorter, and what it has waiting moves forward by as much (`credit`).
What was never served moves only those who come later, so that nobody gets forward by asking and withdrawing.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

MOST_KNOWN: Final = 4_096
"""Lines kept here; beyond it those that the class's time has passed are forgotten, which loses
them nothing; were there none, the oldest."""


@dataclass(slots=True, eq=False)
class Ticket:
    """Lengths and tags are tokens divided by the tenant's weight."""

    index: int  # of its class
    tokens: int  # most it may use, and what its adapter's load costs
    floor: float  # the class's virtual time when the ticket was asked for
    weight: int = 1
    pool: str = "queue"  # names the replicas that are shared
    load_tokens: int = 0  # the part of `tokens` that is for an adapter's load
    tag: float | None = None  # None until it is given
    credit: float = 0.0  # the tenant's, when the tag was given
    credit_after: float | None = None  # the tenant's, once this request was settled
    served: bool = False  # it is, or was, at a replica
    held_back: str | None = None  # why it did not go at once

    @property
    def length(self) -> float:
        return self.tokens / self.weight

    def used_length(self, used_tokens: int) -> float:
        """What stays charged."""
        return (used_tokens + self.load_tokens) / self.weight if self.served else 0.0

    def start(self, credit: float) -> float:
        """Its tag as things are now; never before the time at which it came."""
        assert self.tag is not None
        return max(self.floor, self.tag - max(0.0, credit - self.credit))


@dataclass(slots=True)
class _Line:
    finish: float = 0.0
    credit: float = 0.0


class Lines:
    """The tenants' lines in one process: the twin of `share.lua`, for requests that no limit holds (probes)
    and for simulations."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Hashable, int], _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def enter(self, tenant: Hashable, ticket: Ticket) -> None:
        """Gives the ticket its tag."""
        if len(self._lines) >= MOST_KNOWN:
            self._forget(ticket)
        line = self._lines.setdefault((tenant, ticket.index), _Line())
        ticket.tag = max(line.finish, ticket.floor)
        ticket.credit = line.credit
        line.finish = ticket.tag + ticket.length

    def settle(self, tenant: Hashable, ticket: Ticket, used_tokens: int) -> None:
        line = self._lines.get((tenant, ticket.index))
        if line is None:
            return
        unused = ticket.length - ticket.used_length(used_tokens)
        line.finish -= unused
        if ticket.served:
            line.credit += unused
        ticket.credit_after = line.credit

    def _forget(self, ticket: Ticket) -> None:
        passed = [key for key, line in self._lines.items() if line.finish <= ticket.floor]
        for key in passed or list(self._lines)[: MOST_KNOWN // 4]:
            del self._lines[key]
