"""One replica as a worker knows it: how it is, what it holds, what it has to do."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.replicas.breaker import Breaker
from gateway.replicas.driver import Driver, ReplicaView

LOAD_TOKENS: Final = 2_000
"""An adapter that must be loaded from the store costs about as much as so many tokens of work."""

ON_DEVICE: Final = 1.0
IN_HOST: Final = 0.6
ON_DISK: Final = 0.2
"""Parts of `LOAD_TOKENS` that are saved where an adapter lies already."""

EXPECTED_S: Final = 10.0
"""A load that was asked for counts as done so long, until the replica's own word is there."""

MAX_EXPECTED: Final = 1_024
MAX_ON_DISK: Final = 4_096
"""Artefacts remembered of a replica: it had them in memory, so its disk has them most likely."""

GENERAL: Final = "general"
"""The pool of requests that no rule sends elsewhere."""


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
    pools: frozenset[str] = frozenset({GENERAL})
    draining: bool = False  # by an operator: what runs there ends there, nothing new goes there
    vouched: bool = True  # listed in the settings, whose author answers for what it holds
    owes: bool = False  # it was away while adapters were purged: it purges before it serves
    unfit: str | None = None  # why it may not serve this base; None = it may
    life: int = 0  # one more whenever it went down: what its caches held is gone
    turn: int = 0  # of the router's choices, the one that took it last
    load: int = 0  # in tokens, as the router last summed it up
    expected: OrderedDict[str, float] = field(default_factory=OrderedDict, repr=False)
    on_disk: OrderedDict[str, None] = field(default_factory=OrderedDict, repr=False)
    held: dict[str, float] = field(default_factory=dict, repr=False)  # residency of what is in memory
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._sort_out()

    @property
    def usable(self) -> bool:
        return self.healthy and self.serves and self.breaker.admits

    @property
    def serves(self) -> bool:
        """Whether new requests may go there while it is well."""
        return self.unfit is None and not self.draining and not self.owes

    @property
    def full(self) -> bool:
        """Whether an adapter that comes makes another one leave its slot."""
        return self.view.num_slots is not None and len(self.view.device) >= self.view.num_slots

    def residency(self, artefact: str | None) -> float:
        """Part of an adapter's load that is done there, 0 to 1."""
        if artefact is None:
            return ON_DEVICE
        if (held := self.held.get(artefact)) is not None:
            return held
        if self.expected and self.expected.get(artefact, 0.0) > self.clock():
            return IN_HOST
        return ON_DISK if artefact in self.on_disk else 0.0

    def expect(self, artefact: str) -> None:
        """Its load was asked for just now."""
        self.expected[artefact] = self.clock() + EXPECTED_S
        self.expected.move_to_end(artefact)
        if len(self.expected) > MAX_EXPECTED:
            self.expected.popitem(last=False)

    def see(self, view: ReplicaView) -> None:
        """Its own word, which replaces what was known."""
        before, self.view = self.view, view
        if (view.device, view.host) == (before.device, before.host):
            return
        self._sort_out()
        for artefact in before.host - view.host:
            self.on_disk[artefact] = None
            self.on_disk.move_to_end(artefact)
        while len(self.on_disk) > MAX_ON_DISK:
            self.on_disk.popitem(last=False)

    def _sort_out(self) -> None:
        self.held = dict.fromkeys(self.view.host, IN_HOST) | dict.fromkeys(self.view.device, ON_DEVICE)

    def forget(self, artefact: str) -> None:
        """It was retired."""
        self.on_disk.pop(artefact, None)
        self.expected.pop(artefact, None)


class Load:
    """What one request weighs on a replica while it is there; released once. What its end says of the
    replica goes through it, too."""

    def __init__(self, replica: Replica, tokens: int, released: Callable[[], None] | None = None) -> None:
        self._replica: Replica | None = replica
        self._breaker = replica.breaker
        self._tokens = tokens
        self._released = released
        self._probe = replica.breaker.begin()
        replica.in_flight += 1
        replica.in_flight_tokens += tokens

    def release(self) -> None:
        if self._replica is None:
            return
        self._replica.in_flight -= 1
        self._replica.in_flight_tokens -= self._tokens
        self._replica = None
        if self._released is not None:
            self._released()

    def succeed(self) -> None:
        """The whole answer came."""
        self._breaker.succeed(probe=self._probe)
        self._probe = False

    def fail(self) -> None:
        """The replica broke off, or answered with a fault of its own."""
        self._breaker.fail(probe=self._probe)
        self._probe = False

    def dismiss(self) -> None:
        """Nothing is to be learnt from it."""
        self._breaker.dismiss(probe=self._probe)
        self._probe = False
