"""The real queue in virtual time: an event loop whose clock jumps to whatever comes next, replicas that take
a stated time, and several workers over the twin of the shared state."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gateway.errors import ApiError, Unavailable
from gateway.principal import TenantId
from gateway.queueing.bounds import QueueLimits
from gateway.queueing.exchange import LEASE_S
from gateway.queueing.fair_queue import Ask, FairQueue
from gateway.queueing.places import Places, Reply, Report
from gateway.queueing.shared_places import SharedPlaces
from gateway.queueing.ticket import Lines

T = TypeVar("T")

TRIP_S = 0.0002
"""Half a trip to Redis and back."""
UNBOUNDED = QueueLimits(max_items=10**6, max_items_tenant=10**6, max_tokens=10**12, max_tokens_tenant=10**12)


class _Jumping(selectors.SelectSelector):
    """Waits for nothing: time passes at once."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing is to come")
        self.loop.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        selector = _Jumping()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


def simulate(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def now() -> float:
    return asyncio.get_running_loop().time()


class Exchange:
    """One worker's way to the shared state; it can be cut."""

    lease_s = LEASE_S

    def __init__(self, shared: SharedPlaces, name: str) -> None:
        self._shared = shared
        self._name = name
        self.cut = False

    async def report(self, report: Report, places: Places) -> Reply | None:
        await asyncio.sleep(TRIP_S)
        if self.cut:
            raise Unavailable("Cut.")
        reply = self._shared.report(self._name, report, places, now())
        await asyncio.sleep(TRIP_S)
        return reply

    async def leave(self) -> None:
        """As a worker that was killed: it says nothing."""


@dataclass(frozen=True)
class Job:
    tenant: TenantId
    seconds: float  # at a replica
    tokens: int = 1_000  # estimated
    used: int | None = None  # None = as estimated
    service_class: str = "standard"
    places: int = 1
    wait_s: float | None = None


@dataclass
class Answer:
    job: Job
    asked_at: float
    waited_s: float | None = None  # in the queue; None = refused, or it went
    began_s: float | None = None  # until a slot of a replica that preempts nobody
    error: ApiError | None = None


@dataclass
class World:
    """Workers before replicas of `capacity` places."""

    capacity: int
    num_workers: int = 1
    limits: QueueLimits = UNBOUNDED
    weights: tuple[int, ...] = (12, 6, 2)
    answers: list[Answer] = field(default_factory=list)
    released_at: list[float] = field(default_factory=list)
    most_running: int = 0  # places taken

    def __post_init__(self) -> None:
        self.lines = Lines()
        self.shared = SharedPlaces(lease_s=LEASE_S)
        self.placed = self.running = 0
        self.busy_s = 0.0  # slots times seconds
        self._slots = asyncio.Semaphore(self.capacity)
        self._counted_at = now()
        self.exchanges = [Exchange(self.shared, f"w{n}") for n in range(self.num_workers)]
        self.workers = [
            FairQueue(self.limits, capacity=self.capacity, weights=self.weights, clock=now)
            for _ in range(self.num_workers)
        ]
        if self.num_workers > 1:
            for queue, exchange in zip(self.workers, self.exchanges, strict=True):
                queue.share(exchange, workers=self.num_workers, loads=dict, heard=lambda _: None)
        self.runs = [asyncio.create_task(queue.run()) for queue in self.workers]

    async def ask(self, job: Job, worker: int = 0) -> Answer:
        """One request from its reservation to its end."""
        queue = self.workers[worker]
        answer = Answer(job, now())
        self.answers.append(answer)
        ticket = queue.ticket(job.service_class, job.tokens)
        self.lines.enter(job.tenant, ticket)
        try:
            place = await queue.enter(Ask(job.tenant, ticket, places=job.places, wait_s=job.wait_s))
        except ApiError as error:
            answer.error = error
            self.lines.settle(job.tenant, ticket, 0)
            return answer
        except asyncio.CancelledError:
            self.lines.settle(job.tenant, ticket, 0)
            raise
        answer.waited_s = now() - answer.asked_at
        self._place(job.places)
        used = job.tokens if job.used is None else job.used
        try:
            await self._served(answer)
        finally:
            self._place(-job.places)
            self.released_at.append(now())
            self.lines.settle(job.tenant, ticket, used)
            place.leave(used)
        return answer

    async def _served(self, answer: Answer) -> None:
        """At a replica, which runs as many as it has slots, in order; what is above them waits there."""
        async with self._slots:
            answer.began_s = now() - answer.asked_at
            self._run(1)
            try:
                await asyncio.sleep(answer.job.seconds)
            finally:
                self._run(-1)

    def _place(self, step: int) -> None:
        self.placed += step
        self.most_running = max(self.most_running, self.placed)

    def _run(self, step: int) -> None:
        self.count()
        self.running += step

    def count(self) -> float:
        """Slots times seconds so far."""
        self.busy_s += self.running * (now() - self._counted_at)
        self._counted_at = now()
        return self.busy_s

    async def use_between(self, start: float, end: float) -> float:
        """The part of all slots that was in use."""
        await asyncio.sleep(start - now())
        before = self.count()
        await asyncio.sleep(end - now())
        return (self.count() - before) / (self.capacity * (end - start))

    def waits(self, tenant: TenantId) -> list[float]:
        return sorted(a.waited_s for a in self.answers if a.job.tenant == tenant and a.waited_s is not None)

    def begins(self, tenant: TenantId) -> list[float]:
        return sorted(a.began_s for a in self.answers if a.job.tenant == tenant and a.began_s is not None)

    def tokens_by(self, key: Callable[[Job], Any], since: float = 0.0) -> Counter[Any]:
        """Tokens of what was let go."""
        found: Counter[Any] = Counter()
        for answer in self.answers:
            if answer.waited_s is not None and answer.asked_at + answer.waited_s >= since:
                job = answer.job
                found[key(job)] += job.tokens if job.used is None else job.used
        return found

    def median_release_s(self) -> float:
        gaps = sorted(b - a for a, b in zip(self.released_at, self.released_at[1:], strict=False))
        return gaps[len(gaps) // 2]

    async def stop(self, load: Iterable[asyncio.Task[Any]] = ()) -> None:
        """Ends all; nothing may be held any more."""
        tasks = list(load)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [(queue.running, queue.waiting) for queue in self.workers] == [(0, 0)] * self.num_workers
        for queue in self.workers:
            scheduler = queue._scheduler
            assert not scheduler.bounds.tenants
            assert scheduler.num_tenants == 0
            assert all(lane.items == lane.places == lane.tokens == 0 for lane in scheduler.lanes)
        for run in self.runs:
            run.cancel()
        await asyncio.gather(*self.runs, return_exceptions=True)


async def arrivals(
    world: World,
    rate: float,
    until: float,
    make: Callable[[random.Random], Job],
    *,
    seed: int,
    workers: list[int],
) -> None:
    """An open loop: requests come by chance, whatever becomes of those before."""
    dice = random.Random(seed)
    tasks: set[asyncio.Task[Answer]] = set()
    try:
        while now() < until:
            await asyncio.sleep(dice.expovariate(rate))
            task = asyncio.create_task(world.ask(make(dice), dice.choice(workers)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    finally:
        left = list(tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def callers(
    world: World, number: int, make: Callable[[random.Random], Job], *, seed: int, worker: int = 0
) -> None:
    """A closed loop: so many at a time, until cancelled."""

    async def one(dice: random.Random) -> None:
        while True:
            await world.ask(make(dice), worker)

    await asyncio.gather(*(one(random.Random(seed * 1000 + n)) for n in range(number)))


def percentile(values: list[float], part: float) -> float:
    return values[min(len(values) - 1, int(part * len(values)))]
