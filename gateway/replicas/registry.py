"""The replicas of this worker, their health, and who gets the next request.

A replica that polling finds unready takes nothing new; its breaker (fed by real requests) is the faster
signal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from gateway.queueing.places import Loads
from gateway.replicas.breaker import Breaker
from gateway.replicas.driver import Driver, ReplicaView, UpstreamFailed
from gateway.replicas.metrics import REPLICA_UP
from gateway.shared_look import SharedLook

log = structlog.get_logger(__name__)

POLL_S = 1.0
LOOK_S = 0.1
"""How old a poll may be before a request is refused for want of a replica."""
LOOK_TIMEOUT_S = 1.0
LOAD_TOKENS = 2_000
"""An adapter that must be loaded costs about as much as so many tokens of work."""


@dataclass(slots=True, eq=False)
class Replica:
    """`in_flight_tokens` is this worker's own, `elsewhere_tokens` the other workers'; the rest of the load is
    what the replica says of itself."""

    url: str
    driver: Driver
    breaker: Breaker = field(default_factory=Breaker)
    healthy: bool = False
    view: ReplicaView = field(default_factory=ReplicaView)
    in_flight: int = 0
    in_flight_tokens: int = 0
    elsewhere: int = 0
    elsewhere_tokens: int = 0

    @property
    def usable(self) -> bool:
        return self.healthy and self.breaker.admits

    def residency(self, artefact: str | None) -> float:
        if artefact is None or artefact in self.view.device:
            return 1.0
        return 0.6 if artefact in self.view.host else 0.0


class Load:
    """What one request weighs on a replica while it is there; released once."""

    def __init__(self, replica: Replica, tokens: int) -> None:
        self._replica: Replica | None = replica
        self._tokens = tokens
        replica.breaker.begin()
        replica.in_flight += 1
        replica.in_flight_tokens += tokens

    def release(self) -> None:
        if self._replica is not None:
            self._replica.in_flight -= 1
            self._replica.in_flight_tokens -= self._tokens
            self._replica = None


class Registry:
    """Owns the replicas of one worker and their polling. `on_change` hears the number of healthy ones;
    `running` is how many requests each runs at a time."""

    def __init__(
        self,
        replicas: Iterable[Replica],
        on_change: Callable[[int], None] | None = None,
        *,
        running: int | None = None,
    ) -> None:
        self._replicas = list(replicas)
        self._on_change = on_change
        self._running = running
        self._look: SharedLook[None] = SharedLook(LOOK_S)

    @property
    def all(self) -> list[Replica]:
        return list(self._replicas)

    @property
    def num_healthy(self) -> int:
        return sum(replica.healthy for replica in self._replicas)

    def choose(self, artefact: str | None, *, tried: Sequence[Replica] = ()) -> Replica | None:
        """The best usable replica, one not yet tried if there is any, else not the one tried last; None when
        no replica can take it."""
        usable = [replica for replica in self._replicas if replica.usable]
        fresh = [replica for replica in usable if replica not in tried]
        others = [replica for replica in usable if replica not in tried[-1:]]
        roomy = [replica for replica in fresh if self._has_room(replica)]
        best = roomy or fresh or others or usable
        return max(best, key=lambda replica: _score(replica, artefact), default=None)

    async def choose_now(self, artefact: str | None, *, tried: Sequence[Replica] = ()) -> Replica | None:
        """As `choose`, but never None for want of news: another worker, whose poll came after a replica was
        up, may have told the client already that all is well."""
        found = self.choose(artefact, tried=tried)
        if found is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_TIMEOUT_S):
                    await self._look(self.poll_once)
            found = self.choose(artefact, tried=tried)
        return found

    def has_other(self, failed: Replica) -> bool:
        """Whether another one is usable."""
        return any(replica.usable and replica is not failed for replica in self._replicas)

    def loads(self) -> Loads:
        """Requests and tokens that this worker has in flight, by replica."""
        return {r.url: (r.in_flight, r.in_flight_tokens) for r in self._replicas if r.in_flight}

    def hear_loads(self, loads: Loads) -> None:
        """What all other workers have in flight."""
        for replica in self._replicas:
            replica.elsewhere, replica.elsewhere_tokens = loads.get(replica.url, (0, 0))

    def likely(self, artefact: str) -> Replica | None:
        """Where a request for the adapter will most likely go: the target of the prefetch hint."""
        return self.choose(artefact)

    def _has_room(self, replica: Replica) -> bool:
        return self._running is None or replica.in_flight + replica.elsewhere < self._running

    async def poll_once(self) -> None:
        await asyncio.gather(*(self._poll(replica) for replica in self._replicas))
        if self._on_change is not None:
            self._on_change(self.num_healthy)

    async def run(self) -> None:
        """Polls until cancelled."""
        while True:
            await self.poll_once()
            await asyncio.sleep(POLL_S)

    async def _poll(self, replica: Replica) -> None:
        before = replica.healthy
        reason = "not ready"
        try:
            replica.healthy = await replica.driver.ready()
            if replica.healthy:
                replica.view = await replica.driver.view()
        except UpstreamFailed as error:
            replica.healthy, reason = False, str(error)
        if replica.healthy != before:
            log.info("replica_up" if replica.healthy else "replica_down", url=replica.url, reason=reason)
        REPLICA_UP.labels(replica.url).set(replica.healthy)


def _score(replica: Replica, artefact: str | None) -> float:
    """Residency first, then load in tokens."""
    load = replica.in_flight_tokens + replica.elsewhere_tokens + replica.view.waiting_tokens
    return LOAD_TOKENS * replica.residency(artefact) - load


async def hint(replica: Replica, artefact: str, owner: str) -> None:
    """Asks for an adapter ahead of its request. Only a hint: a failure is logged and changes nothing."""
    call: Awaitable[None] = replica.driver.prefetch(artefact, owner)
    try:
        await call
    except UpstreamFailed as error:
        log.info("prefetch_failed", url=replica.url, reason=str(error))
