"""The replicas of this worker: who may take requests, who gets the next one, what each has to do.

A replica's own word (`watching.py`) says whether it is ready; its breaker, fed by real requests, is the
faster signal. Its set changes while it runs (`roster.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from gateway.queueing.places import Loads
from gateway.replicas.breaker import BreakerState
from gateway.replicas.driver import ReplicaView, UpstreamFailed
from gateway.replicas.metrics import BREAKERS, REPLICA_UNFIT, REPLICA_UP
from gateway.replicas.replica import GENERAL, LOAD_TOKENS, Load, Replica
from gateway.replicas.routing import Router
from gateway.replicas.rules import PoolRule
from gateway.replicas.want import ANYTHING, Want
from gateway.replicas.watching import POLL_S, Watching
from gateway.replicas.weights import Weights
from gateway.shared_look import SharedLook

__all__ = ["LOAD_TOKENS", "POLL_S", "Load", "Registry", "Replica", "hint"]

log = structlog.get_logger(__name__)

LOOK_S = 0.1
"""How old a poll may be before a request is refused for want of a replica."""
LOOK_TIMEOUT_S = 1.0
PROBE_S = 1.0
"""What a probe through a breaker may take, before others are let in."""
LONGEST_AWAY_S = 15.0
"""Until when who finds no replica is asked to wait, at most."""


class Registry:
    """Owns the replicas of one worker and their watching. `on_change` hears the number of healthy ones;
    `running` is how many requests each runs at a time; `weights` says which may serve."""

    def __init__(
        self,
        replicas: Iterable[Replica],
        on_change: Callable[[int], None] | None = None,
        *,
        running: int | None = None,
        weights: Weights | None = None,
        router: Router | None = None,
    ) -> None:
        self._on_change = on_change
        self._told: int | None = None
        self._running = running
        self._weights = weights or Weights()
        self._router = router or Router()
        self._watching = Watching(self._hear)
        self._look: SharedLook[None] = SharedLook(LOOK_S)
        self._replicas: tuple[Replica, ...] = ()
        self._none_since: float | None = None
        self._pools: dict[str, tuple[Replica, ...]] = {}
        self._digests: frozenset[str] = frozenset()  # of the weights that are served here
        self.rules: tuple[PoolRule, ...] = ()
        self.on_view: Callable[[Replica, ReplicaView], None] | None = None
        """Hears each state of a replica (on it by then), and the one before."""
        self.set_replicas(replicas)

    @property
    def all(self) -> list[Replica]:
        return list(self._replicas)

    @property
    def num_healthy(self) -> int:
        """Of those that new requests may go to."""
        return sum(replica.healthy and replica.serves for replica in self._replicas)

    @property
    def digests(self) -> frozenset[str]:
        """Of the weights that healthy replicas serve with."""
        told = (r.view.base_digest for r in self._replicas if r.healthy and r.serves)
        return frozenset(digest for digest in told if digest is not None)

    def set_replicas(self, replicas: Iterable[Replica]) -> None:
        """From now on these; what runs at others ends there."""
        before, self._replicas = self._replicas, tuple(replicas)
        for gone in set(before) - set(self._replicas):
            self._router.forget(gone)
            self._watching.drop(gone)
            _no_metrics(gone)
        self._watching.add(replica for replica in self._replicas if replica not in before)
        self.note_change()

    def note_change(self) -> None:
        """Pools, draining, fitness or weights of a replica changed."""
        pools: dict[str, list[Replica]] = {}
        for replica in self._replicas:
            if replica.serves:
                for pool in replica.pools:
                    pools.setdefault(pool, []).append(replica)
        self._pools = {pool: tuple(members) for pool, members in pools.items()}
        told = (replica.view.base_digest for replica in self._replicas if replica.serves)
        self._digests = frozenset(digest for digest in told if digest is not None)
        if self.num_healthy:
            self._none_since = None
        elif self._none_since is None:
            self._none_since = time.monotonic()
        if self._on_change is not None and self._told != self.num_healthy:
            self._told = self.num_healthy
            self._on_change(self._told)

    def choose(self, want: Want = ANYTHING, *, tried: Sequence[Replica] = ()) -> Replica | None:
        """The best usable replica, one not yet tried if there is any, else not the one tried last; None when
        no replica can take it."""
        able, members = self._able(want, tried)
        return self._router.choose(able, want, members)

    async def choose_now(self, want: Want = ANYTHING, *, tried: Sequence[Replica] = ()) -> Replica | None:
        """As `choose`, but never None for want of news: another worker, whose poll came after a replica was
        up, may have told the client already that all is well."""
        found = self.choose(want, tried=tried)
        if found is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_TIMEOUT_S):
                    await self._look(self.poll_once)
            found = self.choose(want, tried=tried)
        return found

    def retry_after_s(self) -> float:
        """When one that found no replica should come again: when a breaker has let its probe through, or,
        where none is up, as long as that has been so."""
        waits = [r.breaker.opens_in_s for r in self._replicas if r.healthy and r.serves]
        if waits or self._none_since is None:
            return min(waits, default=0.0) + PROBE_S
        return min(max(PROBE_S, time.monotonic() - self._none_since), LONGEST_AWAY_S)

    def send(self, replica: Replica, want: Want) -> Load:
        """A request goes there, and weighs on it until it is released."""
        able, members = self._able(want, ())
        self._router.note(replica, want, able, members)
        return Load(replica, want.tokens, partial(self._router.ended, want))

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

    def members(self, pool: str) -> tuple[Replica, ...]:
        """All of a pool that new requests may go to, those included that can take none at the moment."""
        return self._pools.get(pool, ())

    def likely(self, artefact: str) -> Replica | None:
        """Where a request for the adapter will most likely go: the target of the prefetch hint."""
        return self.choose(Want(artefact))

    def expect_weights(self, weights: Weights) -> None:
        """Which weights may serve, from now on."""
        if weights == self._weights:
            return
        self._weights = weights
        for replica in self._replicas:
            self._judge(replica)
        self.note_change()

    async def poll_once(self) -> None:
        """Asks every replica once."""
        await self._watching.poll_all(self._replicas)
        self.measure()

    async def run(self) -> None:
        """Watches until cancelled."""
        await self._watching.run(self.measure)

    def measure(self) -> None:
        """What metrics show of them."""
        for replica in self._replicas:
            REPLICA_UP.labels(replica.url).set(replica.healthy)
            REPLICA_UNFIT.labels(replica.url).set(replica.unfit is not None)
            state = replica.breaker.state
            for each in BreakerState:
                BREAKERS.labels(replica.url, each.value).set(each is state)

    def _able(self, want: Want, tried: Sequence[Replica]) -> tuple[list[Replica], tuple[Replica, ...]]:
        """Who can take it now, and all members of their pool."""
        members = self._fit(want, want.pool)
        able, roomy = self._of_pool(members, tried)
        if want.fallback and not roomy and want.pool != GENERAL:
            general = self._fit(want, GENERAL)
            able_there, roomy_there = self._of_pool(general, tried)
            if roomy_there or not able:
                return able_there, general
        return able, members

    def _fit(self, want: Want, pool: str) -> tuple[Replica, ...]:
        """The pool's members with weights that the adapter was proved on; those that don't say are vouched
        for."""
        members = self._pools.get(pool, ())
        if want.digests is None or self._digests <= want.digests:
            return members
        return tuple(r for r in members if r.view.base_digest is None or r.view.base_digest in want.digests)

    def _of_pool(self, members: tuple[Replica, ...], tried: Sequence[Replica]) -> tuple[list[Replica], bool]:
        """Who of a pool can take it, and whether they have room."""
        usable = [r for r in members if r.healthy and (r.breaker.closed or r.breaker.admits)]
        fresh = [r for r in usable if r not in tried] if tried else usable
        if (running := self._running) is None:
            roomy = fresh
        else:
            roomy = [r for r in fresh if r.in_flight + r.elsewhere < running]
        if roomy:
            return roomy, True
        return fresh or [r for r in usable if r not in tried[-1:]] or usable, False

    def _hear(self, replica: Replica, view: ReplicaView | None, reason: str) -> None:
        """A replica's own word; None: it is not ready."""
        if replica not in self._replicas:
            return
        was = (replica.healthy, replica.unfit, replica.view.base_digest)
        if view is not None:
            before = replica.view
            replica.see(view)
            self._judge(replica)
            if self.on_view is not None:
                self.on_view(replica, before)
        replica.healthy = view is not None
        if was[0] and view is None:
            replica.life += 1
        if (replica.healthy, replica.unfit, replica.view.base_digest) != was:
            log.info("replica_up" if replica.healthy else "replica_down", url=replica.url, reason=reason)
            self.note_change()
            self.measure()

    def _judge(self, replica: Replica) -> None:
        before, replica.unfit = replica.unfit, self._weights.unfit(replica.view, vouched=replica.vouched)
        if replica.unfit is not None and replica.unfit != before:
            log.error("replica_unfit", url=replica.url, reason=replica.unfit)


def _no_metrics(gone: Replica) -> None:
    """Of one that was removed, what a gauge shows last is that it is not there."""
    REPLICA_UP.labels(gone.url).set(0)
    REPLICA_UNFIT.labels(gone.url).set(0)
    for state in BreakerState:
        BREAKERS.labels(gone.url, state.value).set(0)


async def hint(replica: Replica, artefact: str, owner: str) -> None:
    """Asks for an adapter ahead of its request. Only a hint: a failure is logged and changes nothing."""
    replica.expect(artefact)
    call: Awaitable[None] = replica.driver.prefetch(artefact, owner)
    try:
        await call
    except UpstreamFailed as error:
        replica.forget(artefact)
        log.info("prefetch_failed", url=replica.url, reason=str(error))
