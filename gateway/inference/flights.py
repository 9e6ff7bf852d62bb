"""One computation for many who ask the same at once: the first leads, the others of its worker wait for what
it lands."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from gateway.answers.answer import Answer
from gateway.principal import TenantId

MAX_WAITING = 1_024
"""Requests of one tenant that wait in a worker for another's answer; more than that compute their own. One
bound for all would let a tenant's crowd make others pay for answers that they had asked for already."""


class Landed(Enum):
    """How a flight ended without an answer for others."""

    LEFT = "left"  # its client left: another one may lead
    NOTHING = "nothing"  # it has no answer that may be given again: each computes its own


@dataclass(slots=True, eq=False)
class Flight:
    """Owned by the request that leads it. The first landing stands; with an answer it stays open for others
    until it is closed."""

    name: str
    tenant: TenantId
    flights: Flights
    _landed: asyncio.Future[Answer | Landed] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def land(self, outcome: Answer | Landed) -> None:
        if not self._landed.done():
            self._landed.set_result(outcome)
            if isinstance(outcome, Landed):
                self.close()

    def close(self) -> None:
        self.flights.forget(self)

    async def landed(self, within_s: float) -> Answer | Landed:
        """Waits; `NOTHING` when the time is over."""
        self.flights.waits[self.tenant] += 1
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.shield(self._landed)
        except TimeoutError:
            return Landed.NOTHING
        finally:
            self.flights.waits[self.tenant] -= 1
            if not self.flights.waits[self.tenant]:
                del self.flights.waits[self.tenant]


class Flights:
    """One per worker."""

    def __init__(self) -> None:
        self._open: dict[str, Flight] = {}
        self.waits: Counter[TenantId] = Counter()

    @property
    def waiting(self) -> int:
        return self.waits.total()

    def full(self, tenant: TenantId) -> bool:
        return self.waits[tenant] >= MAX_WAITING

    def under_way(self, name: str) -> Flight | None:
        return self._open.get(name)

    def begin(self, name: str, tenant: TenantId) -> Flight:
        assert name not in self._open
        flight = self._open[name] = Flight(name, tenant, self)
        return flight

    def forget(self, flight: Flight) -> None:
        if self._open.get(flight.name) is flight:
            del self._open[flight.name]
