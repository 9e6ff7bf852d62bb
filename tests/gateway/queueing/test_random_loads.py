"""Any requests, through any of three workers, some of whose clients leave: in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.principal import TenantId
from tests.gateway.queueing.simulation import UNBOUNDED, Job, World, simulate

PLACES, WORKERS = 8, 3
PATIENT = replace(UNBOUNDED, max_wait_s=1e6)
"""Nobody is turned away for a forecast: where tokens say nothing of time, as here, it may be far off."""


@dataclass(frozen=True)
class Step:
    gap_ms: int
    worker: int
    tenant: int
    service_class: str
    tokens: int
    used: int
    ms: int
    places: int
    leaves_after_ms: int | None


STEP = st.builds(
    Step,
    gap_ms=st.sampled_from([0, 0, 0, 1, 30, 500]),
    worker=st.integers(0, WORKERS - 1),
    tenant=st.integers(1, 4),
    service_class=st.sampled_from(["interactive", "standard", "batch"]),
    tokens=st.integers(1, 20_000),
    used=st.integers(0, 20_000),
    ms=st.integers(1, 1_000),
    places=st.sampled_from([1, 1, 1, 2, 8]),
    leaves_after_ms=st.one_of(st.none(), st.none(), st.integers(0, 1_500)),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_never_over_the_places_nobody_lost_and_nothing_left(steps: list[Step]) -> None:
    async def main() -> None:
        world = World(PLACES, WORKERS, PATIENT)
        tasks: list[asyncio.Task[object]] = []
        for step in steps:
            await asyncio.sleep(step.gap_ms / 1000)
            tasks.append(asyncio.create_task(world.ask(_job(step), step.worker)))
            if step.leaves_after_ms is not None:
                asyncio.get_running_loop().call_later(step.leaves_after_ms / 1000, tasks[-1].cancel)
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=600)
            assert not stuck
        assert world.most_running <= PLACES + PLACES // 4
        assert world.shared.held <= PLACES + PLACES // 4
        assert not [answer for answer in world.answers if answer.error is not None]
        await world.stop()

    simulate(main)


def _job(step: Step) -> Job:
    return Job(
        TenantId(UUID(int=step.tenant)),
        step.ms / 1000,
        tokens=step.tokens,
        used=min(step.used, step.tokens),
        service_class=step.service_class,
        places=step.places,
    )
