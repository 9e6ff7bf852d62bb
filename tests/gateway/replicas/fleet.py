"""Replicas in virtual time before the real registry and router: slots for adapters, loads that take time, a
queue before all of them. No I/O."""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import cast

from gateway.replicas.breaker import Breaker
from gateway.replicas.driver import Driver, ReplicaView
from gateway.replicas.registry import Registry
from gateway.replicas.replica import Load, Replica
from gateway.replicas.routing import Router
from gateway.replicas.want import Want

LOAD_S = 1.0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def replica(name: str, clock: Clock, **more: object) -> Replica:
    """One that is well and empty."""
    made = Replica(f"http://{name}", cast(Driver, None), Breaker(clock), healthy=True, clock=clock)
    for attribute, value in more.items():
        setattr(made, attribute, value)
    return made


@dataclass
class Machine:
    """What stands behind a replica: `slots` adapters at a time, the least recently used idle one goes."""

    replica: Replica
    slots: int
    device: OrderedDict[str, int] = field(default_factory=OrderedDict)  # running requests of each
    loads: int = 0

    def begin(self, artefact: str | None) -> float:
        """Seconds until it can run."""
        if artefact is None:
            return 0.0
        if artefact in self.device:
            self.device[artefact] += 1
            self.device.move_to_end(artefact)
            return 0.0
        if len(self.device) >= self.slots:
            idle = next((name for name, running in self.device.items() if not running), None)
            if idle is not None:
                del self.device[idle]
        self.device[artefact] = 1
        self.loads += 1
        self._show()
        return LOAD_S

    def end(self, artefact: str | None) -> None:
        if artefact is not None and artefact in self.device:
            self.device[artefact] -= 1

    def _show(self) -> None:
        held = frozenset(self.device)
        self.replica.see(ReplicaView(device=held, host=held, num_slots=self.slots))


@dataclass(frozen=True)
class Ask:
    at: float
    want: Want
    takes_s: float = 1.0


Policy = Callable[[Registry, Want], Replica | None]


class Fleet:
    """`policy` chooses; by default the router does."""

    def __init__(self, num: int, *, slots: int = 4, running: int = 8, policy: Policy | None = None) -> None:
        self.clock = Clock()
        self.machines = [Machine(replica(f"r{n}", self.clock), slots) for n in range(num)]
        self.router = Router(self.clock)
        self.registry = Registry(
            [machine.replica for machine in self.machines], running=running, router=self.router
        )
        self._policy = policy or (lambda registry, want: registry.choose(want))
        self._by_replica = {machine.replica: machine for machine in self.machines}
        self._places = num * running
        self.waits: dict[str | None, list[float]] = {}
        self.served: Counter[tuple[str | None, str]] = Counter()
        self.most_over_mean = 0.0

    @property
    def replicas(self) -> list[Replica]:
        return [machine.replica for machine in self.machines]

    @property
    def loads(self) -> int:
        return sum(machine.loads for machine in self.machines)

    def run(self, asks: Iterable[Ask]) -> None:
        numbers = count()
        events: list[tuple[float, int, Ask | tuple[Ask, Machine, Load]]] = []
        for ask in asks:
            heapq.heappush(events, (self.clock.now + ask.at, next(numbers), ask))
        waiting: deque[tuple[float, Ask]] = deque()
        out = 0
        while events:
            self.clock.now, _, event = heapq.heappop(events)
            if isinstance(event, Ask):
                waiting.append((self.clock.now, event))
            else:
                ended, machine, load = event
                load.release()
                machine.end(ended.want.artefact)
                out -= 1
            while waiting and out < self._places:
                since, ask = waiting[0]
                chosen = self._policy(self.registry, ask.want)
                if chosen is None:
                    break
                waiting.popleft()
                machine = self._by_replica[chosen]
                load = self.registry.send(chosen, ask.want)
                out += 1
                delay = machine.begin(ask.want.artefact)
                self.waits.setdefault(ask.want.artefact, []).append(self.clock.now - since)
                self.served[ask.want.artefact, chosen.url] += 1
                self._compare()
                heapq.heappush(
                    events, (self.clock.now + delay + ask.takes_s, next(numbers), (ask, machine, load))
                )

    def _compare(self) -> None:
        tokens = [machine.replica.in_flight_tokens for machine in self.machines]
        mean = sum(tokens) / len(tokens)
        if mean > 8_000:
            self.most_over_mean = max(self.most_over_mean, max(tokens) / mean)


def prefer_loaded(registry: Registry, want: Want) -> Replica | None:
    """What simple routers do: whoever has the adapter, with room or without; else the least busy."""
    able = [one for one in registry.all if one.usable]
    return max(able, key=lambda one: (one.residency(want.artefact) == 1.0, -one.in_flight_tokens))


def least_busy(registry: Registry, want: Want) -> Replica | None:
    """What other simple routers do."""
    return min((one for one in registry.all if one.usable), key=lambda one: one.in_flight_tokens)
