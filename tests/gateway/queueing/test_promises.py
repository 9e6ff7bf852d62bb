"""What the queue promises, shown in virtual time: nothing here waits or is timed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from uuid import UUID

import pytest

from gateway.principal import TenantId
from gateway.queueing.bounds import QueueLimits
from gateway.queueing.exchange import LEASE_S
from tests.gateway.queueing.simulation import (
    UNBOUNDED,
    Answer,
    Job,
    World,
    arrivals,
    callers,
    now,
    percentile,
    simulate,
)

LOUD, QUIET, OTHER = (TenantId(UUID(int=n)) for n in (1, 2, 3))
SECONDS = 0.5  # mean time at a replica
PLACES = 16
FULL = PLACES / SECONDS  # requests a second
BOUNDED = QueueLimits(max_items_tenant=256)


def of(tenant: TenantId, service_class: str = "standard") -> Callable[[random.Random], Job]:
    def make(dice: random.Random) -> Job:
        return Job(
            tenant,
            dice.expovariate(1 / SECONDS),
            tokens=1_000,
            used=dice.randint(50, 1_000),
            service_class=service_class,
        )

    return make


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_quiet_tenant_beside_a_hundredfold_flood(num_workers: int) -> None:
    seconds = 250 / num_workers

    async def main(with_flood: bool) -> tuple[float, float]:
        world = World(PLACES, num_workers, BOUNDED)
        workers = list(range(num_workers))
        load = [
            asyncio.create_task(arrivals(world, 0.02 * FULL, seconds, of(QUIET), seed=1, workers=workers))
        ]
        if with_flood:
            load.append(
                asyncio.create_task(arrivals(world, 2 * FULL, seconds, of(LOUD), seed=2, workers=workers))
            )
        await asyncio.sleep(seconds)
        interval = world.median_release_s()
        waits = world.waits(QUIET)
        assert len(waits) > 60
        await world.stop(load)
        assert world.most_running <= PLACES + PLACES // 4
        return percentile(waits, 0.99), interval

    alone, _ = simulate(lambda: main(False))
    beside, interval = simulate(lambda: main(True))
    assert beside <= alone + interval


@pytest.mark.parametrize(("num_workers", "busy"), [(1, [0]), (2, [0]), (2, [0, 1]), (3, [0, 2])])
def test_a_lone_tenant_uses_all_places(num_workers: int, busy: list[int]) -> None:
    async def main() -> float:
        world = World(PLACES, num_workers)
        load = [asyncio.create_task(callers(world, 4 * PLACES, of(LOUD), seed=n, worker=n)) for n in busy]
        use = await world.use_between(3, 23)
        await world.stop(load)
        assert world.most_running <= PLACES + PLACES // 4
        return use

    assert simulate(main) >= 0.97


def test_each_class_gets_its_share_while_all_wait() -> None:
    async def main() -> dict[str, float]:
        world = World(PLACES)
        load = [
            asyncio.create_task(callers(world, 64, of(tenant, name), seed=n))
            for n, (tenant, name) in enumerate([(LOUD, "interactive"), (OTHER, "standard"), (QUIET, "batch")])
        ]
        await asyncio.sleep(70)
        served = world.tokens_by(lambda job: job.service_class, since=10)
        await world.stop(load)
        return {name: tokens / served.total() for name, tokens in served.items()}

    shares = simulate(main)
    assert shares["batch"] == pytest.approx(0.10, abs=0.02)
    assert shares["standard"] == pytest.approx(0.30, abs=0.03)


def test_an_idle_class_leaves_its_share_to_the_others_and_saves_nothing_up() -> None:
    async def main() -> float:
        world = World(PLACES)
        load = [asyncio.create_task(callers(world, 64, of(LOUD, "interactive"), seed=1))]
        await asyncio.sleep(30)
        load.append(asyncio.create_task(callers(world, 64, of(QUIET, "batch"), seed=2)))
        await asyncio.sleep(50)
        served = world.tokens_by(lambda job: job.service_class, since=30)
        await world.stop(load)
        return served["batch"] / served.total()

    assert simulate(main) == pytest.approx(2 / 14, abs=0.03)


def test_waiting_raises_a_request_above_any_weight() -> None:
    """Batch has next to no share here; its line still moves once in two aging times."""

    async def main() -> list[float]:
        world = World(PLACES, weights=(100_000, 100_000, 1))
        load = [
            asyncio.create_task(callers(world, 64, of(LOUD, "interactive"), seed=1)),
            asyncio.create_task(callers(world, 64, of(OTHER, "standard"), seed=2)),
        ]
        await asyncio.sleep(5)
        waiting = [asyncio.create_task(world.ask(Job(QUIET, 0.1, service_class="batch"))) for _ in range(40)]
        await asyncio.sleep(60)
        await world.stop([*load, *waiting])
        return world.waits(QUIET)

    waits = simulate(main)
    assert 60 / 12 - 1 <= len(waits) < 40
    assert waits[0] <= 12


def test_tenants_share_a_class_by_tokens_over_two_workers() -> None:
    """One sends large requests through one worker, one small ones through both."""

    def small(dice: random.Random) -> Job:
        return Job(QUIET, dice.expovariate(1 / SECONDS), tokens=500)

    def large(dice: random.Random) -> Job:
        return Job(LOUD, dice.expovariate(1 / SECONDS), tokens=2_000)

    async def main() -> tuple[int, int]:
        world = World(PLACES, 2)
        load = [
            asyncio.create_task(callers(world, 64, large, seed=1, worker=0)),
            asyncio.create_task(callers(world, 64, small, seed=2, worker=0)),
            asyncio.create_task(callers(world, 64, small, seed=3, worker=1)),
        ]
        await asyncio.sleep(60)
        served = world.tokens_by(lambda job: job.tenant, since=10)
        await world.stop(load)
        assert world.most_running <= PLACES + PLACES // 4
        return served[LOUD], served[QUIET]

    loud, quiet = simulate(main)
    assert loud / quiet == pytest.approx(1.0, abs=0.15)


def test_what_was_not_used_is_given_back() -> None:
    """Two tenants use as much; one estimates ten times as much, and loses nothing by it."""

    async def main() -> tuple[int, int]:
        world = World(PLACES)
        load = [
            asyncio.create_task(callers(world, 64, lambda _: Job(LOUD, SECONDS, 5_000, 500), seed=1)),
            asyncio.create_task(callers(world, 64, lambda _: Job(QUIET, SECONDS, 500, 500), seed=2)),
        ]
        await asyncio.sleep(130)
        served = world.tokens_by(lambda job: job.tenant, since=30)
        await world.stop(load)
        return served[LOUD], served[QUIET]

    loud, quiet = simulate(main)
    assert loud / quiet == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("limits", [UNBOUNDED, QueueLimits(max_items_tenant=20), QueueLimits(max_items=20)])
def test_coming_back_when_told_succeeds(limits: QueueLimits) -> None:
    """More callers than can be served in their time; each comes back once, when it was told to."""

    async def caller(world: World, dice: random.Random, second: list[Answer]) -> None:
        while True:
            await asyncio.sleep(dice.expovariate(1 / 3))
            job = Job(LOUD, dice.expovariate(1 / SECONDS), used=dice.randint(50, 1_000), wait_s=3.0)
            first = await world.ask(job)
            if first.error is not None:
                await asyncio.sleep(int(first.error.headers["retry-after-ms"]) / 1000)
                second.append(await world.ask(job))

    async def main() -> tuple[int, int]:
        world = World(PLACES, limits=limits)
        second: list[Answer] = []
        load = [asyncio.create_task(caller(world, random.Random(n), second)) for n in range(300)]
        await asyncio.sleep(15)
        second.clear()
        await asyncio.sleep(60)
        told, served = len(second), sum(each.error is None for each in second)
        await world.stop(load)
        return told, served

    told, served = simulate(main)
    assert told > 300
    assert served >= 0.95 * told


def test_no_dead_request_reaches_a_replica() -> None:
    async def main() -> None:
        world = World(PLACES)
        holders = [asyncio.create_task(world.ask(Job(LOUD, 10.0))) for _ in range(PLACES)]
        await asyncio.sleep(0.1)
        late = [asyncio.create_task(world.ask(Job(LOUD, 1.0, wait_s=2.0))) for _ in range(8)]
        await asyncio.gather(*holders, *late)
        assert [getattr(task.result().error, "status", None) for task in late] == [504] * 8
        assert now() == pytest.approx(10.0)
        await world.stop()

    simulate(main)


def test_what_a_killed_worker_held_comes_back() -> None:
    async def main() -> float:
        world = World(PLACES, 2)
        dead = [asyncio.create_task(world.ask(Job(LOUD, 10_000.0), 0)) for _ in range(PLACES)]
        await asyncio.sleep(1)
        world.runs[0].cancel()
        load = [asyncio.create_task(callers(world, 64, of(QUIET), seed=1, worker=1))]
        await asyncio.sleep(LEASE_S - 1.5)
        assert world.workers[1].running <= PLACES // 4
        await asyncio.sleep(2)
        assert world.workers[1].running == PLACES
        alive = world.workers[1].running
        await world.stop([*load, *dead])
        return alive

    assert simulate(main) == PLACES


def test_without_the_shared_state_each_keeps_to_its_part_and_comes_back_without_a_burst() -> None:
    async def main() -> None:
        world = World(PLACES, 2)
        load = [
            asyncio.create_task(callers(world, 64, of(LOUD), seed=1, worker=0)),
            asyncio.create_task(callers(world, 64, of(QUIET), seed=2, worker=1)),
        ]
        await asyncio.sleep(5)
        for exchange in world.exchanges:
            exchange.cut = True
        await asyncio.sleep(2 * LEASE_S)
        part = PLACES // 2
        assert all(part - 2 <= queue.running <= part + part // 4 for queue in world.workers)
        for exchange in world.exchanges:
            exchange.cut = False
        world.most_running = 0
        await asyncio.sleep(10)
        assert world.most_running <= PLACES + PLACES // 4
        assert sum(queue.running for queue in world.workers) >= PLACES
        await world.stop(load)

    simulate(main)
